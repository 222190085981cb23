#!/usr/bin/env python3
"""Recomputes every worked number of paper-notes.md and confidence.md.

Run it from anywhere: `python3 docs/check_paper_notes.py`. Standard library only, fixed seeds, a few seconds.
Each `fact` prints a number and fails when the page that quotes it shows anything else.
"""

import math
import pathlib
import random
import re
from math import atanh, exp, log, sqrt, tanh

DOCS = pathlib.Path(__file__).resolve().parent
PAGES = {name: (DOCS / name).read_text(encoding="utf-8") for name in ("paper-notes.md", "confidence.md")}
page, section = "paper-notes.md", ""


def start(new_page, heading):
    """From here on, facts must stand in the part of `new_page` that begins with `heading`."""
    global page, section
    page, text = new_page, PAGES[new_page]
    begin = text.index(heading)
    level = heading.split(" ")[0]
    end = re.search(rf"^#{{1,{len(level)}}} ", text[begin + len(heading):], re.M)
    section = text[begin: begin + len(heading) + end.start()] if end else text[begin:]
    print(f"\n{page}: {heading}")


def fact(label, value, shown):
    """`shown` is the number as printed on the page; `value` must round to it."""
    mantissa, _, exponent = shown.replace(",", "").partition("e")
    decimals = len(mantissa.partition(".")[2])
    half = 0.5 * 10.0 ** (int(exponent or 0) - decimals)
    print(f"  {label}: {value:.6g} (page: {shown})")
    assert abs(value - float(mantissa + "e" + (exponent or "0"))) <= half * (1 + 1e-9), (label, value, shown)
    assert re.search(rf"(?<![\d.]){re.escape(shown)}(?!\d|\.\d|e\d)", section), f"{shown} is not in {page}"


def smallest(holds):
    """Smallest integer at which a monotone condition holds."""
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# ---- the paper's formulas, as printed or repaired ----

def coordinates(d):
    return d * (d + 3) // 2


def paper_c(eps0, d, m=1):
    """Prop. 1: c = 1 - p with p = 2/(exp(2 eps0/(m d (d+3))) + 1)."""
    return tanh(eps0 / (2 * m * coordinates(d)))


def prop3(d, m, p, l, ln8, ln2):
    """Prop. 3 with ln8 = ln(8m/delta0), ln2 = ln(2m/delta0); the unreadable 8 delta0/m read as 8m/delta0."""
    q, q8 = sqrt(2 * p * ln2 / l), sqrt(2 * p * ln8 / l)
    if p <= q8:
        return math.inf
    return 2 * d * (d + 3) * sqrt(8 * m * ln8) * (1 - (p - q)) * sqrt(32 * ln8 / (l * (p - q8)))


def thm1_size(constant, d, T, eps, delta0, p, m=1):
    """Smallest l that Thm 1 accepts; `constant` is 1 as printed, 2 as it follows from Prop. 3."""
    ln8, ln2 = log(8 * m * T / delta0), log(2 * m * T / delta0)

    def accepts(l):
        a2 = (eps * l / (32 * d * (d + 3) * ln8 * sqrt(2 * T * log(2 * T / delta0)))) ** 2
        left = sqrt(a2 * (a2 + 4))
        return l * p >= 14 * ln8 and left >= constant - 2 * p + 2 * sqrt(2 * ln2 / l) + a2

    return smallest(accepts)


def lambda_paper(t, delta, m, c, ridge=0.0):
    """Eq. (lambda_reg)."""
    root = sqrt(8 * t * log(2 * t / delta))
    return root / m + 2 * root / (c * sqrt(m)) + ridge


def noise_bracket(t, delta, m, p):
    """The bracket of Eq. (confidence_width) that stands for one coordinate of h."""
    g = log(2 * t / delta)
    return 2 * sqrt(p * (1 - p / 2) * t * m * g) + 8 * g / 3 + sqrt(8) / m * sqrt(t * g)


def beta_paper(d, L, S, sigma, t, delta, m, p, ridge):
    """formats.md, mode `paper`, natural units: (nu, beta)."""
    lam, g = lambda_paper(t, delta, m, 1 - p, ridge), log(2 * t / delta)
    beta = (sigma * sqrt(8 * g + d * log(3 + t / lam)) + S * sqrt(3 * 2 * L**2 * lam)
            + sqrt(2) * d / sqrt(lam) * noise_bracket(t, delta, m, p))
    return 2 * L**2 * lam, beta


def proven(d, L, S, s, delta_j, bias=0.0):
    """formats.md, mode `proven`: (nu, eta, z)."""
    nu = L**2 * (s * sqrt(2 * d * log(6 * d / delta_j)) + d * bias)
    eta = L * (s * (sqrt(d) + sqrt(2 * log(3 / delta_j))) + sqrt(d) * bias)
    low, high = 0.0, 1.0
    gap = lambda z: S**2 * z**3 - eta**2 * (z + 2 * nu)
    while gap(high) < 0:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if gap(middle) >= 0 else (middle, high)
    return nu, eta, high


# ---- small linear algebra ----

def cholesky(a):
    d = len(a)
    c = [[0.0] * d for _ in range(d)]
    for i in range(d):
        for k in range(i + 1):
            rest = a[i][k] - sum(c[i][n] * c[k][n] for n in range(k))
            c[i][k] = sqrt(rest) if i == k else rest / c[k][k]
    return c


def solve(a, b):
    c, d = cholesky(a), len(a)
    y = []
    for i in range(d):
        y.append((b[i] - sum(c[i][n] * y[n] for n in range(i))) / c[i][i])
    x = [0.0] * d
    for i in reversed(range(d)):
        x[i] = (y[i] - sum(c[n][i] * x[n] for n in range(i + 1, d))) / c[i][i]
    return x


def times(a, x):
    return [sum(p * q for p, q in zip(row, x)) for row in a]


def dot(x, y):
    return sum(p * q for p, q in zip(x, y))


def fair_sum(rng, t):
    """Exact draw of 2*Bin(t, 1/2) - t."""
    bits = rng.getrandbits(t)
    return 2 * (bits.bit_count() if hasattr(bits, "bit_count") else bin(bits).count("1")) - t


def symmetric(d, draw):
    a = [[0.0] * d for _ in range(d)]
    for i in range(d):
        for k in range(i + 1):
            a[i][k] = a[k][i] = draw()
    return a


# ---- paper-notes.md ----

def slip_1():
    start("paper-notes.md", "### 1. ")
    d, T, delta0, p = 5, 10**6, 1e-6, 0.9
    printed = thm1_size(1, d, T, 1.0, delta0, p)
    fact("printed condition, eps = 1", printed, "463")
    fact("printed condition, eps = 1e-9", thm1_size(1, d, T, 1e-9, delta0, p), "463")
    ln8, ln2 = log(8 * T / delta0), log(2 * T / delta0)
    fact("Prop. 3 for one batch at that size", prop3(d, 1, p, printed, ln8, ln2), "1.0e3")
    repaired = thm1_size(2, d, T, 1.0, delta0, p)
    fact("repaired condition, eps = 1", repaired, "3.1e7")
    composed = prop3(d, 1, p, repaired, ln8, ln2) * sqrt(2 * T / repaired * log(2 * T / delta0))
    assert 0.98 < composed < 1.02, composed  # the repaired condition is the solution of Prop. 3
    one = smallest(lambda l: prop3(d, 1, p, l, log(8 / delta0), log(2 / delta0)) <= 1)
    fact("Prop. 3 alone, one batch", one, "4.8e6")
    e = 0.5
    fact("second-order term eps (e^eps - 1) at eps_j = 0.5", e * (exp(e) - 1), "0.32")


def slip_2():
    start("paper-notes.md", "### 2. ")
    T = 10**6
    edge = 1 / (27 * T**0.25)
    fact("largest eps of Cor. 2 at T = 1e6", edge, "0.00117")
    fact("largest T of Cor. 2 at eps = 0.001", 1 / (27 * 0.001) ** 4, "1.9e6")
    fact("x at eps = 1, T = 1e6", T ** (1 / 6), "10")
    fact("x at the edge", edge ** (2 / 3) * T ** (1 / 6), "0.111")
    fact("rate at the edge over T^(3/4)", T ** (2 / 3) / edge ** (1 / 3) / T**0.75, "3")
    fact("T from which 4 (S+d) 3 T^(3/4) < T, S=1, d=5", (4 * 6 * 3) ** 4, "2.7e7")


def slip_3():
    start("paper-notes.md", "### 3. ")
    d, t, delta, c = 400, 100, 0.05, 0.01
    rng = random.Random("slip 3")
    noise = symmetric(d, lambda: fair_sum(rng, t) / 2)  # (U - t/2); the debiased noise is this over c
    limit = c * lambda_paper(t, delta, 1, c)
    v = [rng.gauss(0, 1) for _ in range(d)]
    for _ in range(60):  # power iteration on (220 I - noise); any v gives a valid lower bound on the norm
        v = [220 * a - b for a, b in zip(v, times(noise, v))]
        size = sqrt(dot(v, v))
        v = [a / size for a in v]
    found = -dot(v, times(noise, v))
    fact("lambda_j times c", limit, "164")
    fact("-<v,Hv> times c for the v found", found, "192")
    fact("sqrt(d t)", sqrt(d * t), "200")
    assert found > limit
    fact("32 ln(2t/delta), the d from which it fails", 32 * log(2 * t / delta), "265")
    fact("the same at t = 1e6", 32 * log(2e6 / delta), "560")


def slip_4():
    start("paper-notes.md", "### 4. ")
    lam = lambda_paper(1000, 0.05, 1, 0.5, 1.0)
    fact("lambda_j", lam, "1457")
    fact("2 lambda_j - lambda", 2 * lam - 1, "2913")
    fact("2 lambda_j", 2 * lam, "2914")


def slip_5():
    start("paper-notes.md", "### 5. ")
    d, t, delta, p, sigma = 5, 10**4, 0.05, 0.5, 0.5

    def printed(L, S):
        lam, g = lambda_paper(t, delta, 1, 1 - p, 1.0), log(2 * t / delta)
        return (sigma * sqrt(8 * g + d * log(3 + t * L**2 / lam)), S * sqrt(3 * lam),
                d / sqrt(lam) * noise_bracket(t, delta, 1, p))

    one, ten = printed(1, 1), printed(10, 0.1)
    fact("sigma term, L = 1", one[0], "5.3")
    fact("sigma term, L = 10", ten[0], "5.7")
    fact("S term, L = 1", one[1], "123")
    fact("S term, L = 10", ten[1], "12.3")
    fact("noise term, L = 1", one[2], "105")
    fact("noise term, L = 10", ten[2], "105")
    natural = [beta_paper(d, L, 1 / L, sigma, t, delta, 1, p, 1.0)[1] for L in (1, 10)]
    assert abs(natural[0] - natural[1]) < 1e-9 * natural[0]  # the repaired width has no unit problem
    fact("norm of error 0.1 at V = 100", sqrt(100) * 0.1, "1")
    fact("the same in V^-1", 0.1 / sqrt(100), "0.01")


def slip_6():
    start("paper-notes.md", "### 6. ")
    fact("T / l", 10**6 / 1000, "1000")
    fact("T * l", 10**6 * 1000, "1e9")


def slip_7():
    start("paper-notes.md", "### 7. ")
    d, t, delta, m, L, S, sigma, eps0 = 20, 10**5, 0.05, 1, 1.0, 0.01, 0.5, 0.5
    c = paper_c(eps0, d)
    p = 1 - c
    fact("c", c, "0.00109")
    g = log(2 * t / delta)
    fact("bound on one h_k as printed", noise_bracket(t, delta, m, p), "5.3e3")
    fact("standard deviation of one h_k", sqrt(t / (4 * m)) / c, "1.5e5")
    nu_paper, beta = beta_paper(d, L, S, sigma, t, delta, m, p, 1.0)
    fact("beta", beta, "127")
    delta_1 = delta / 2
    s = sqrt(t / (m * c * c))
    nu, eta, z = proven(d, L, S, s, delta_1, t * 2.0**-30 / c)
    rng = random.Random("slip 7")
    missed, errors, covered, runs = 0, [], 0, 50
    for _ in range(runs):  # every context is 0, so every coin is fair and G = 0
        noise = symmetric(d, lambda: L * L * fair_sum(rng, t) / c)
        h = [L * fair_sum(rng, t) / c for _ in range(d)]
        star = [rng.gauss(0, 1) for _ in range(d)]
        size = sqrt(dot(star, star))
        star = [S * a / size for a in star]

        def error(lam):
            v = [[a + (lam if i == k else 0) for k, a in enumerate(row)] for i, row in enumerate(noise)]
            diff = [a - b for a, b in zip(solve(v, h), star)]
            return sqrt(dot(diff, times(v, diff)))

        errors.append(error(2 * nu_paper))
        missed += errors[-1] > beta
        covered += error(nu + z) <= S * sqrt(2 * nu + z) + eta / sqrt(z)  # less than the full width: no sigma term
    fact("mean error in the V norm", sum(errors) / runs, "260")
    fact("runs outside `paper`", missed, "50")
    fact("runs inside `proven`", covered, "50")
    fact("S L below which the S term no longer hides it", sqrt(d / g) / 16, "0.072")
    fact("c below which the noise term is too small", 1 / (12 * sqrt(d * g)), "0.0048")


def slip_8():
    start("paper-notes.md", "### 8. ")
    a, b = 4.0, 1 / 3
    fact("det V_j / det V_r", a * b, "1.33")
    fact("squared width ratio along e_1", a, "4")
    fact("worst ratio (1+eta) 3^(d-1), d = 5", 1.5 * 3**4, "121.5")


def slip_9():
    start("paper-notes.md", "### 9. ")
    d, T, lam = 20, 10**4, 100.0
    potential = d * sum(1 / sqrt(lam + n) for n in range(1, T // d + 1))
    printed = sqrt(T * log(1 + T / (d * lam)))
    fact("sum of widths", potential, "579")
    fact("printed bound", printed, "134")
    fact("with sqrt(2d)", printed * sqrt(2 * d), "847")
    T, delta, c = 10**6, 0.05, 0.5
    fact("sqrt(3 lambda_T)", sqrt(3 * lambda_paper(T, delta, 1, c)), "421")
    fact("printed sqrt(3) T^(1/4) / sqrt(1-p)", sqrt(3) * T**0.25 / sqrt(c), "77")


def slip_10():
    start("paper-notes.md", "### 10. ")
    d, T, delta0, p, eps = 2, 10**6, 1e-6, 0.9, 1.0
    root = 128 * sqrt(2 * T * log(2 / delta0)) * d * (d + 1) * log(8 / delta0) * (1 - p) / eps
    printed = max(8 * log(2 / delta0) / p**2, root, 14 * log(2 / delta0) / p)
    fact("Eq. (nb_batch)", printed, "6.6e6")
    needed = thm1_size(2, d, T, eps, delta0, p)
    fact("what Thm 1 (repaired) needs", needed, "7.8e6")
    assert needed > printed
    consistent = 128 * sqrt(2 * T * log(2 * T / delta0)) * d * (d + 3) * log(8 * T / delta0) * (1 - p) / eps
    fact("with d(d+3) and T in the logs", consistent, "2.9e7")


def slip_11():
    start("paper-notes.md", "### 11. ")
    d, delta0 = 5, 1e-6
    fact("D", coordinates(d), "20")
    fact("what the argument gives", coordinates(d) * delta0, "2e-5")
    one, all_d = log(8 / delta0), log(8 * coordinates(d) / delta0)
    fact("ln(8/delta0)", one, "15.9")
    fact("ln(8D/delta0)", all_d, "18.9")
    fact("eps_j must grow by", all_d / one, "1.19")
    fact("ln(8 delta0/m), the printed argument", log(8 * delta0), "-11.7")


def slip_12():
    start("paper-notes.md", "### 12. ")
    d, eps0, T = 5, 0.5, 10**6
    whole, per_bit = tanh(eps0 / 2), paper_c(eps0, d)
    fact("c with p = 2/(e^eps0 + 1)", whole, "0.245")
    fact("c with the per-bit p", per_bit, "0.0125")
    fact("regret term too small by", sqrt(whole / per_bit), "4.4")
    fact("ln 2", log(2), "0.693")
    fact("eps at eps0 = 1", sqrt(exp(1) - 1), "1.31")
    fact("eps at eps0 = 0.5, corollary", sqrt(exp(eps0) - 1), "0.81")
    fact("eps at eps0 = 0.5, table", eps0**1.5 / T**0.25, "0.011")


def slip_13():
    start("paper-notes.md", "### 13. ")
    d, T, eps = 5, 10**6, 1e-3
    x = eps ** (2 / 3) * T ** (1 / 6)
    fact("x", x, "0.1")
    eps0 = d * (d + 3) / 2 * log(2 / (1 - x) - 1)
    fact("eps0 of Cor. 2", eps0, "4.01")
    assert abs(eps0 - 2 * coordinates(d) * atanh(x)) < 1e-9
    fact("6 d^2 x", 6 * d * d * x, "15")
    fact("text, 2x", 2 * x, "0.2")
    c = T**0.3 * eps**0.8
    fact("optimal c of Remark 2", c, "0.25")
    first, second = T**0.75 / sqrt(c), c * c / eps**2
    assert abs(first / second - 1) < 1e-9 and abs(first / (T**0.6 / eps**0.4) - 1) < 1e-9
    fact("T^(3/5)/eps^(2/5)", first, "6.3e4")
    fact("1/eps^2", 1 / eps**2, "1e6")


def slip_14():
    start("paper-notes.md", "### 14. ")
    harmonic = lambda n: sum(1 / k for k in range(1, n + 1))
    fact("sum of 1/t_j, l = 1, T = 1e6", harmonic(10**6), "14.4")
    fact("sum of 1/t_j, l = 100, T = 1e6", harmonic(10**4) / 100, "0.098")
    vacuous = exp(20 - 0.5772156649)
    fact("t at which 0.05 * sum 1/t reaches 1", vacuous, "2.7e8")
    assert abs(sum(1 / (j * (j + 1)) for j in range(1, 10**5)) - 1) < 2e-5


def remark_2():
    start("paper-notes.md", "* **Remark 2's plan is degenerate.**")
    d, T, eps, delta0 = 5, 10**6, 1e-3, 1e-6
    c = T**0.3 * eps**0.8
    fact("c of Remark 2", c, "0.25")
    one = lambda l: prop3(d, 1, 1 - c, l, log(8 / delta0), log(2 / delta0))
    fact("batch by Prop. 3, one release", smallest(lambda l: one(l) <= eps), "3.5e13")
    fact("Prop. 3 at l = T", one(T), "6.0")
    fact("T^(3/5)/eps^(2/5)", T**0.6 / eps**0.4, "6.3e4")


# ---- confidence.md ----

def proven_example():
    start("confidence.md", "## How wide it is")
    d, L, S, sigma, delta, c, m, l, j = 5, 1.0, 1.0, 0.5, 0.05, 0.47, 1, 100, 100
    t, delta_j = l * j, delta / (j * (j + 1))
    s, bias = sqrt(t / (m * c * c)), t * 2.0**-30 / c
    nu, eta, z = proven(d, L, S, s, delta_j, bias)
    fact("s", s, "213")
    fact("bias", bias, "2.0e-5")
    fact("nu", nu, "2.7e3")
    fact("eta", eta, "1.6e3")
    fact("z", z, "2.7e3")
    fact("lambda", nu + z, "5.4e3")
    fact("ridge term", S * sqrt(2 * nu + z), "90")
    fact("moment term", eta / sqrt(z), "30")
    noise = sigma * sqrt(2 * log(3 / delta_j) + d * log(1 + (t + 2 * nu) / z))
    fact("upper bound on the sigma term", noise, "3.0")
    fact("2 sqrt(d) s over nu", 2 * sqrt(d) * s / nu, "0.36")
    nu_c = s * (2 * sqrt(d) + 0.9793 * d ** (-1 / 6))
    w = 1 - 2 / (9 * d) + 1.6449 * sqrt(2 / (9 * d))
    eta_c = s * sqrt(d) * w**1.5
    fact("calibrated nu", nu_c, "1.1e3")
    fact("calibrated eta", eta_c, "7.1e2")
    fact("calibrated lambda", 2 * nu_c, "2.2e3")
    fact("calibrated S and eta terms, full", sqrt(3 * nu_c) + eta_c / sqrt(nu_c), "79")
    fact("the same at exploration 0.2", 0.2 * (sqrt(3 * nu_c) + eta_c / sqrt(nu_c)), "16")
    fact("chi-square quantile, Wilson-Hilferty, d = 5", d * w**3, "11.04")


def malicious_example():
    start("confidence.md", "## One malicious report")
    d, L, c, size, low = 5, 1.0, 0.47, 1.0, 5000.0
    gram = 2 * L * L * d / c
    fact("change of the Gram matrix", gram, "21.3")
    fact("change of the moment", 2 * L * sqrt(d) / c, "9.5")
    fact("bound on the change of theta", (2 * L / c) * (sqrt(d) + L * d * size) / (low - gram), "0.0062")
    fact("100 such reports", 100 * (2 * L / c) * (sqrt(d) + L * d * size) / (low - 100 * gram), "1.07")


if __name__ == "__main__":
    for number in range(1, 15):
        globals()[f"slip_{number}"]()
    remark_2()
    proven_example()
    malicious_example()
    print("\nall numbers agree with the pages")
