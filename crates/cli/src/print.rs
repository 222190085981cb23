//! What the program writes: data to stdout, talk to stderr, lines that fit a terminal.

use std::{
    fmt,
    io::{self, Write},
    process,
};

/// Columns that every terminal has.
pub const WIDTH: usize = 80;
/// A gap of two spaces before this column separates a name from its text.
const NAMES: usize = 40;

/// Prints a line of data; quietly stops when nobody reads any more (`incrowd plan | head`).
macro_rules! out {
    ($($argument:tt)*) => { $crate::print::line(format_args!($($argument)*)) };
}

/// As std's, which panics where stderr is closed or its disk full; errors of writing are ignored
/// here.
macro_rules! eprintln {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($argument)*);
    }};
}

/// A line on stdout.
pub fn line(line: fmt::Arguments<'_>) {
    bytes(format!("{line}\n").as_bytes());
}

/// Exactly these bytes on stdout.
pub fn bytes(bytes: &[u8]) {
    let mut stdout = io::stdout();
    if let Err(error) = stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        if error.kind() == io::ErrorKind::BrokenPipe {
            process::exit(0);
        }
        eprintln!("error: cannot write to stdout: {error}");
        process::exit(2);
    }
}

/// The text with its long lines broken at spaces. What follows is below the beginning of the
/// line's text, behind its name or dash. A word that is longer than a line stays whole.
pub fn wrapped(text: &str) -> String {
    text.lines().map(broken).collect::<Vec<_>>().join("\n")
}

fn broken(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    let text = text_of(line);
    let (name, text) = line.split_at(text);
    let margin = name.chars().count();
    let (mut broken, mut column) = (name.to_owned(), margin);
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > margin && column + 1 + length > WIDTH {
            broken.push('\n');
            broken.extend(std::iter::repeat_n(' ', margin));
            column = margin;
        } else if column > margin {
            broken.push(' ');
            column += 1;
        }
        broken.push_str(word);
        column += length;
    }
    broken
}

/// Where a line's text begins, in bytes: behind its indentation and dash, or its name and a gap.
fn text_of(line: &str) -> usize {
    let indented = line.len() - line.trim_start().len();
    let dash = line[indented..].starts_with("- ");
    let start = if dash { indented + 2 } else { indented };
    let head: usize = line.chars().take(NAMES).map(char::len_utf8).sum();
    let gap = line[start..head.max(start)].rfind("  ").map(|gap| start + gap + 2);
    if dash { start } else { gap.unwrap_or(start) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_go_on_below_their_text() {
        let words = "word ".repeat(20);
        let words = words.trim_end();
        let shown = |line: String| -> Vec<String> {
            let shown = wrapped(&line);
            assert_eq!(shown.split_whitespace().collect::<String>(), line.replace(' ', ""));
            shown.lines().map(|line| line.replace("word", "w")).collect()
        };
        let of = |number: usize| vec!["w"; number].join(" ");
        assert_eq!(shown(words.into()), [of(16), of(4)]);
        assert_eq!(
            shown(format!("  - {words}")),
            [format!("  - {}", of(15)), format!("    {}", of(5))]
        );
        assert_eq!(
            shown(format!("a name         {words}")),
            [format!("a name         {}", of(13)), format!("               {}", of(7))]
        );
        assert_eq!(shown("x".repeat(80)), ["x".repeat(80)]);
        let long = "x".repeat(100);
        assert_eq!(shown(format!("{words} {long} y"))[2..], [long, "y".into()]);
        assert_eq!(wrapped("short\n\nlines  stay"), "short\n\nlines  stay");
    }
}
