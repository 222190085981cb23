//! Confirmation before an irreversible command.

use std::{
    error::Error,
    io::{self, BufRead, IsTerminal},
};

/// Goes on if `yes` was given, or a person at a terminal types it. Otherwise says what would
/// happen, and that nothing has.
pub fn confirm(what: &str, yes: bool) -> Result<(), Box<dyn Error>> {
    if yes {
        return Ok(());
    }
    let mut answer = String::new();
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        eprintln!("{what}. It cannot be undone. Type yes and Enter to do it.");
        io::stdin().lock().read_line(&mut answer)?;
    }
    if answer.trim() == "yes" {
        return Ok(());
    }
    Err(format!("nothing is done yet: {what}, which cannot be undone\nhint: --yes does it").into())
}
