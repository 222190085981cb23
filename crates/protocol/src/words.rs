//! The words of a codebook: what a secret seed expands to, as integers.
//!
//! An entry is a normal variable in steps of 1/16, rounded: its sign and magnitude come from 64
//! uniform bits and a table, in integer operations alone, so that every language makes the same
//! words. `docs/formats.md`, Words.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

/// Steps of an entry in one standard deviation.
pub const STEPS: i32 = 16;
/// No entry is larger: 8.5 standard deviations.
pub const CLIP: i32 = THRESHOLDS.len() as i32;

/// Beside the seed in the generator's key.
const TAG: [u8; 16] = *b"incrowd/words/v1";
/// Entries that one block of the generator makes.
const BLOCK: usize = 16;
/// The stream that is asked for the low halves of tied entries.
const LOW: u64 = 1;
/// Words of the generator that are drawn at once.
const DRAWN: usize = 4 * BLOCK;
/// The highest of 31 bits that the guide is indexed by.
const GUIDE_BITS: u32 = 10;

/// The magnitude is m or more when 63 uniform bits are at least entry m - 1: 2^63 P(|X| < (m -
/// 1/2)/16), X standard normal, rounded to the nearest integer. `vectors/reference.py` computes
/// them.
#[rustfmt::skip]
pub const THRESHOLDS: [u64; 136] = [
    0x0330_e69c_ba5d_8d46, 0x098f_83ff_98f3_d747, 0x0fe4_9b67_dc81_59c6, 0x1629_f31d_7816_8226,
    0x1c59_8029_f74b_429b, 0x226d_77c7_11b8_f0d9, 0x2860_5f92_909b_ff2b, 0x2e2d_1c3c_52a8_98ee,
    0x33ce_fe6d_8d2e_8245, 0x3941_cdb4_4928_6fbc, 0x3e81_d14b_20ed_661a, 0x438b_d6a3_0249_cee2,
    0x485d_35a2_bfb7_3e55, 0x4cf3_d29e_1a29_c10e, 0x514e_1e13_38a1_6cda, 0x556b_1249_d9a6_4667,
    0x594a_2efa_97c9_d7bb, 0x5ceb_732e_1722_d4e3, 0x604f_558b_a970_0f6a, 0x6376_bb54_c65c_2b1c,
    0x6662_ee4e_8cf5_c3db, 0x6915_91dc_64a1_1a36, 0x6b90_978e_d137_b379, 0x6dd6_3367_c96c_c4d0,
    0x6fe8_d012_8657_8877, 0x71cb_0348_0fc0_759b, 0x737f_8293_fa38_e89c, 0x7509_18a6_261b_9ef9,
    0x766a_9b57_16b3_c8fd, 0x77a6_e27c_f2fa_9f37, 0x78c0_bfa7_adf3_0b03, 0x79ba_f6d3_6e3d_0297,
    0x7a98_3819_4645_678e, 0x7b5b_1a5f_d340_0b7d, 0x7c06_1707_8a7c_488d, 0x7c9b_8689_72d8_7cfa,
    0x7d1d_9dfa_d21a_2611, 0x7d8e_6d64_fa05_b5b3, 0x7def_dedd_dd99_558e, 0x7e43_b64c_6346_58fc,
    0x7e8b_91c2_7737_2859, 0x7ec8_ea56_9def_9e75, 0x7efd_1567_1e08_3d30, 0x7f29_4631_af95_add0,
    0x7f4e_8fab_e054_2d73, 0x7f6d_e689_ec6b_d202, 0x7f88_2363_951f_2eb8, 0x7f9e_04e8_6b30_32cd,
    0x7fb0_3216_feb8_140f, 0x7fbf_3c6c_60a3_9ff4, 0x7fcb_a203_4ccf_e4d8, 0x7fd5_cf9c_2389_b0dc,
    0x7fde_2288_855d_8680, 0x7fe4_ea76_e6b7_5734, 0x7fea_6b1b_c628_9da5, 0x7fee_ddb7_56bb_32c2,
    0x7ff2_7277_67b5_35c6, 0x7ff5_51b6_1e43_79ea, 0x7ff7_9d16_b665_8277, 0x7ff9_7081_fabf_d9c7,
    0x7ffa_e304_7abe_368b, 0x7ffc_0790_c00d_6b37, 0x7ffc_eda7_e45f_8f31, 0x7ffd_a1ea_f2fc_eaae,
    0x7ffe_2e97_7af9_a649, 0x7ffe_9bf1_a2d0_433a, 0x7ffe_f09d_f005_bdd5, 0x7fff_31ec_d05c_47a9,
    0x7fff_6419_c884_0ae2, 0x7fff_8a80_0050_719c, 0x7fff_a7c5_b7f6_4e78, 0x7fff_be00_0616_ce9d,
    0x7fff_ced0_1461_8980, 0x7fff_db7a_e91f_cfef, 0x7fff_e4fc_a77f_7464, 0x7fff_ec18_0f39_e431,
    0x7fff_f162_e659_57bc, 0x7fff_f54f_dd5b_dbf5, 0x7fff_f836_66ac_fbd0, 0x7fff_fa58_e633_42cf,
    0x7fff_fbe9_8c43_8a00, 0x7fff_fd0e_206f_367a, 0x7fff_fde2_f40f_c52c, 0x7fff_fe7d_29e4_feb9,
    0x7fff_feec_7752_403c, 0x7fff_ff3c_7c84_b8cf, 0x7fff_ff75_cad7_9c9d, 0x7fff_ff9e_abf0_edbd,
    0x7fff_ffbb_b824_1f57, 0x7fff_ffd0_477f_a513, 0x7fff_ffde_c664_fba8, 0x7fff_ffe8_f48a_5e2c,
    0x7fff_fff0_13b1_364f, 0x7fff_fff5_0a1f_767b, 0x7fff_fff8_7bf3_1438, 0x7fff_fffa_dda7_7a7a,
    0x7fff_fffc_8191_5c4c, 0x7fff_fffd_a1a4_5e49, 0x7fff_fffe_6680_02b8, 0x7fff_fffe_ec80_14ac,
    0x7fff_ffff_475b_b07c, 0x7fff_ffff_84b9_389d, 0x7fff_ffff_ae02_14e1, 0x7fff_ffff_c9ac_c113,
    0x7fff_ffff_dc24_acfd, 0x7fff_ffff_e86c_6bf1, 0x7fff_ffff_f08e_a6d2, 0x7fff_ffff_f5ec_6bf4,
    0x7fff_ffff_f973_3f1a, 0x7fff_ffff_fbc2_426a, 0x7fff_ffff_fd43_a4ed, 0x7fff_ffff_fe3d_f6f4,
    0x7fff_ffff_fedf_ec2a, 0x7fff_ffff_ff48_4d1d, 0x7fff_ffff_ff8b_4f21, 0x7fff_ffff_ffb6_288d,
    0x7fff_ffff_ffd1_73cc, 0x7fff_ffff_ffe2_c526, 0x7fff_ffff_ffed_b71c, 0x7fff_ffff_fff4_9b1a,
    0x7fff_ffff_fff8_ed4e, 0x7fff_ffff_fffb_a04e, 0x7fff_ffff_fffd_4e43, 0x7fff_ffff_fffe_58bf,
    0x7fff_ffff_fffe_fd46, 0x7fff_ffff_ffff_6273, 0x7fff_ffff_ffff_a06e, 0x7fff_ffff_ffff_c640,
    0x7fff_ffff_ffff_dd3d, 0x7fff_ffff_ffff_eb28, 0x7fff_ffff_ffff_f38d, 0x7fff_ffff_ffff_f897,
    0x7fff_ffff_ffff_fb9c, 0x7fff_ffff_ffff_fd68, 0x7fff_ffff_ffff_fe7a, 0x7fff_ffff_ffff_ff1b,
];

/// How many thresholds are surely not above a magnitude's bits with this beginning.
const GUIDE: [u8; 1 << GUIDE_BITS] = guide();

const fn guide() -> [u8; 1 << GUIDE_BITS] {
    let mut guide = [0; 1 << GUIDE_BITS];
    let mut start = 0;
    while start < guide.len() {
        while (guide[start] as usize) < THRESHOLDS.len()
            && THRESHOLDS[guide[start] as usize] <= (start as u64) << (63 - GUIDE_BITS)
        {
            guide[start] += 1;
        }
        start += 1;
    }
    guide
}

/// The magnitude of an entry: how many thresholds are at most the 63 bits `high` (31 bits) and
/// `low` (32 bits). The low bits are asked for only where the high ones are equal to a threshold's.
pub fn magnitude(high: u32, low: impl FnOnce() -> u32) -> usize {
    let mut magnitude = GUIDE[(high >> (31 - GUIDE_BITS)) as usize] as usize;
    let top =
        |magnitude: usize| THRESHOLDS.get(magnitude).map(|threshold| (threshold >> 32) as u32);
    while top(magnitude).is_some_and(|top| top < high) {
        magnitude += 1;
    }
    if top(magnitude) == Some(high) {
        let bits = u64::from(high) << 32 | u64::from(low());
        while THRESHOLDS.get(magnitude).is_some_and(|&threshold| threshold <= bits) {
            magnitude += 1;
        }
    }
    magnitude
}

/// The words that one seed expands to.
///
/// # Privacy
/// The seed is secret: it travels inside the sealed report and is forgotten with it. Whoever knows
/// it can tell a report's word from others.
pub struct Words {
    high: ChaCha20Rng,
    stride: usize,
}

impl Words {
    /// Words of `entries` entries each.
    pub fn new(seed: &[u8; 16], entries: usize) -> Self {
        let mut key = [0; 32];
        key[..16].copy_from_slice(seed);
        key[16..].copy_from_slice(&TAG);
        Self { high: ChaCha20Rng::from_seed(key), stride: entries.next_multiple_of(BLOCK) }
    }

    /// Entries of a word, filled up to whole blocks of the generator.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Goes to an entry of a word: the next bits drawn are its.
    pub fn seek(&mut self, word: usize, entry: usize) {
        self.high.set_word_pos((word * self.stride + entry) as u128);
    }

    /// The 32 bits of the next entries: the sign (1 is negative) and the high 31 bits of the
    /// magnitude. After the last entry of a word and its filling comes the next word.
    pub fn draw(&mut self, bits: &mut [u32]) {
        let mut bytes = [0; 4 * DRAWN];
        for bits in bits.chunks_mut(DRAWN) {
            let bytes = &mut bytes[..4 * bits.len()];
            self.high.fill_bytes(bytes);
            for (bits, bytes) in bits.iter_mut().zip(bytes.as_chunks().0) {
                *bits = u32::from_le_bytes(*bytes);
            }
        }
    }

    /// The low 32 bits of the magnitude of one entry.
    pub fn low(&self, word: usize, entry: usize) -> u32 {
        let mut low = self.high.clone();
        low.set_stream(LOW);
        low.set_word_pos((word * self.stride + entry) as u128);
        low.next_u32()
    }

    /// An entry from its 32 bits.
    pub fn value(&self, bits: u32, word: usize, entry: usize) -> i32 {
        let magnitude = magnitude(bits & (u32::MAX >> 1), || self.low(word, entry)) as i32;
        if bits >> 31 == 0 { magnitude } else { -magnitude }
    }

    /// One entry of one word alone.
    pub fn entry(&mut self, word: usize, entry: usize) -> i32 {
        let mut bits = [0];
        self.seek(word, entry);
        self.draw(&mut bits);
        self.value(bits[0], word, entry)
    }

    /// Adds the first entries of a word to `sums`, as many as there are.
    pub fn add(&mut self, word: usize, sums: &mut [i64]) {
        self.seek(word, 0);
        let mut bits = [0; DRAWN];
        for (start, sums) in (0..).step_by(DRAWN).zip(sums.chunks_mut(DRAWN)) {
            let bits = &mut bits[..sums.len()];
            self.draw(bits);
            for ((entry, sum), &bits) in (start..).zip(sums).zip(&*bits) {
                *sum += i64::from(self.value(bits, word, entry));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against counting the thresholds one by one, at and around each of them.
    #[test]
    fn a_magnitude_is_the_number_of_thresholds_below() {
        let count = |bits: u64| THRESHOLDS.iter().filter(|&&threshold| threshold <= bits).count();
        let ends = [0, 1, (1 << 63) - 1];
        let around =
            THRESHOLDS.iter().flat_map(|&threshold| [threshold - 1, threshold, threshold + 1]);
        let high = THRESHOLDS
            .iter()
            .flat_map(|&t| [t >> 32 << 32, t | 0xffff_ffff, ((t >> 32) + 1) << 32]);
        for bits in ends.into_iter().chain(around).chain(high).filter(|bits| bits >> 63 == 0) {
            let found = magnitude((bits >> 32) as u32, || bits as u32);
            assert_eq!(found, count(bits), "{bits:x}");
        }
    }

    #[test]
    fn the_low_bits_are_asked_for_only_where_the_high_ones_are_tied() {
        let tops: Vec<u32> = THRESHOLDS.iter().map(|threshold| (threshold >> 32) as u32).collect();
        for high in tops.iter().flat_map(|&top| [top.saturating_sub(1), top, top + 1]) {
            let mut asked = false;
            magnitude(high & (u32::MAX >> 1), || {
                asked = true;
                0
            });
            assert_eq!(asked, tops.contains(&(high & (u32::MAX >> 1))), "{high:x}");
        }
    }

    #[test]
    fn a_word_is_the_same_alone_and_among_others() {
        let seed = [7; 16];
        for entries in [2, 15, 16, 17, 66, 231] {
            let mut words = Words::new(&seed, entries);
            let mut together = vec![0; 3 * words.stride()];
            words.seek(0, 0);
            words.draw(&mut together);
            for word in 0..3 {
                let mut sums = vec![0i64; entries - 1];
                words.add(word, &mut sums);
                for (entry, &sum) in sums.iter().enumerate() {
                    assert_eq!(i64::from(words.entry(word, entry)), sum);
                    let bits = together[word * words.stride() + entry];
                    assert_eq!(i64::from(words.value(bits, word, entry)), sum);
                }
            }
        }
    }
}
