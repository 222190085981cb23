//! Numbers in arguments, for all commands alike.

use std::any::TypeId;

use clap::{Arg, Command};
use incrowd_planner::number;

/// The command with numbers as a person writes them (`1e5`, `100_000`, `1_000.5`) in all its
/// arguments. One that begins with a minus is a number out of range, not another option.
pub fn read_by(command: Command) -> Command {
    let subcommands: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = command.mut_args(argument);
    subcommands.into_iter().fold(command, |command, name| command.mut_subcommand(name, read_by))
}

fn argument(argument: Arg) -> Arg {
    let of = |kind: TypeId| argument.get_value_parser().type_id() == kind;
    if of(TypeId::of::<u16>()) {
        argument.value_parser(|text: &str| number::whole(text, 0, u16::MAX))
    } else if of(TypeId::of::<u32>()) {
        argument.value_parser(|text: &str| number::whole(text, 0, u32::MAX))
    } else if of(TypeId::of::<u64>()) {
        argument.value_parser(|text: &str| number::whole(text, 0, u64::MAX))
    } else if of(TypeId::of::<f64>()) {
        argument.value_parser(number::real)
    } else {
        return argument;
    }
    .allow_negative_numbers(true)
}
