//! `incrowd keys`: the secrets of a role and the tokens of its callers.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use clap::{Args, Subcommand, ValueEnum};
use incrowd_files::create_folder;
use incrowd_node::{Files, Issuer, KeyError, KeyRole, Keys, Role, Serial, Tokens, write_token};
use incrowd_protocol::KeyState;

/// Keys and tokens of a role, in its data folder.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Folder with keys and tokens.
    #[arg(long, value_name = "FOLDER", default_value = "incrowd-data", global = true)]
    data: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    /// Make the keys of a role, and print the public one that task files name.
    New {
        /// Whose keys.
        #[arg(long, value_enum)]
        role: RoleName,
    },
    /// Print the public keys.
    Show {
        /// Whose keys.
        #[arg(long, value_enum)]
        role: RoleName,
    },
    /// Rotation, step 1: make new keys for reports and for the gateway, which nobody uses yet.
    Rotate,
    /// Rotation, step 2, when the service has read them again: devices use them from now on.
    Activate,
    /// Rotation, step 3, when nothing for the old keys can come any more (a grace window later):
    /// remove their secrets and overwrite the old file. A flash disk, a snapshot or a copy-on-write
    /// file system may keep them all the same: the disk should be encrypted.
    Expire {
        /// Also when devices may still use the old keys.
        #[arg(long)]
        yes: bool,
    },
    /// Make a token, keep its hash, and print it or write it to a file: it is shown only now.
    Token {
        /// Whose token.
        #[arg(long, value_enum)]
        role: TokenRole,
        /// Also forget every earlier token of this role.
        #[arg(long)]
        revoke_others: bool,
        /// A new file for the token that only its owner can read, instead of standard output.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Refuse tokens from now on: all of a role, or the own ones of single devices.
    Revoke {
        /// Whose tokens.
        #[arg(long, value_enum)]
        role: Option<TokenRole>,
        /// A device's token, or the 32 hex digits of its serial.
        #[arg(long, value_name = "SERIAL", required_unless_present = "role")]
        device: Vec<Serial>,
    },
    /// Make the secret that tokens of single devices are made with (admission = "device-tokens").
    Issuer {
        /// Take the place of an earlier one: all its tokens are refused from now on.
        #[arg(long)]
        replace: bool,
    },
    /// Make tokens of single devices, one in each line.
    DeviceTokens {
        /// How many.
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        number: u32,
        /// A new file for them that only its owner can read, instead of standard output.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

impl Command {
    /// Whether it is the first step in a new folder.
    fn makes_folder(&self) -> bool {
        matches!(self, Self::New { .. } | Self::Token { .. } | Self::Issuer { .. })
    }

    /// Whether it changes files of keys or tokens.
    fn changes(&self) -> bool {
        !matches!(self, Self::Show { .. } | Self::DeviceTokens { .. })
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum RoleName {
    Shuffler,
    Bandit,
}

impl From<RoleName> for KeyRole {
    fn from(role: RoleName) -> Self {
        match role {
            RoleName::Shuffler => Self::Shuffler,
            RoleName::Bandit => Self::Bandit,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum TokenRole {
    /// Uploads reports; one for all devices.
    Device,
    /// Collects releases.
    Bandit,
    /// Carries Oblivious HTTP requests.
    Relay,
    /// Reads metrics and how far tasks are.
    Monitor,
    /// Closes tasks, and may do what a monitor may.
    Admin,
}

impl From<TokenRole> for Role {
    fn from(role: TokenRole) -> Self {
        match role {
            TokenRole::Device => Self::Device,
            TokenRole::Bandit => Self::Bandit,
            TokenRole::Relay => Self::Relay,
            TokenRole::Monitor => Self::Monitor,
            TokenRole::Admin => Self::Admin,
        }
    }
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let files = Files::of(&arguments.data);
    if arguments.command.makes_folder() {
        create_folder(&arguments.data)?;
    }
    // Held until the end: what is written was made from what was read.
    let _lock = if arguments.command.changes() { files.lock_keys()? } else { None };
    let shuffler = || Keys::load(&files.shuffler_keys, KeyRole::Shuffler);
    match &arguments.command {
        Command::New { role } => {
            let role = KeyRole::from(*role);
            let keys = Keys::create(files.keys(role), role)?;
            out!("{}", keys.verification_key());
        }
        Command::Show { role } => {
            let role = KeyRole::from(*role);
            show(&Keys::load(files.keys(role), role)?);
        }
        Command::Rotate => {
            let id = shuffler()?.add_pending()?;
            out!("keys {id} are pending");
            hint_reload();
        }
        Command::Activate => {
            let id = shuffler()?.activate_pending(SystemTime::now())?;
            out!("keys {id} are active");
            hint_reload();
        }
        Command::Expire { yes } => {
            let expired = shuffler()?.expire_old(SystemTime::now(), *yes);
            let expired = expired.map_err(|error| match error {
                KeyError::TooEarly { .. } => format!(
                    "{error}\nhint: wait, or say --yes: who still uses them asks for the new ones"
                ),
                error => error.to_string(),
            });
            for id in expired? {
                out!("keys {id} are expired, their secrets overwritten");
            }
            hint_reload();
        }
        Command::Token { role, revoke_others, out } => {
            token(&files.tokens, (*role).into(), *revoke_others, out.as_deref())?;
        }
        Command::Revoke { role, device } => revoke(&files.tokens, *role, device)?,
        Command::Issuer { replace } => {
            Issuer::generate()?.save(&files.issuer, *replace)?;
            eprintln!("the issuing secret is in {}", files.issuer.display());
            if *replace {
                eprintln!("tokens of the earlier one are revoked");
                hint_followed();
            }
        }
        Command::DeviceTokens { number, out } => {
            device_tokens(&Issuer::load(&files.issuer)?, *number, out.as_deref())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A new token, and its hash among those of a data folder.
fn token(
    path: &Path,
    role: Role,
    revoke_others: bool,
    out: Option<&Path>,
) -> Result<(), Box<dyn Error>> {
    let mut tokens = if path.exists() { Tokens::load(path)? } else { Tokens::default() };
    let revoked = if revoke_others { tokens.revoke(role) } else { 0 };
    let token = tokens.add(role)?;
    if let Some(out) = out {
        // First: a hash whose token nobody has would be of no use.
        write_token(out, &token)?;
        if let Err(error) = tokens.save(path) {
            let _ = fs::remove_file(out);
            return Err(error.into());
        }
        eprintln!("the token is in {}", out.display());
    } else {
        tokens.save(path)?;
        out!("{}", token.as_str());
    }
    if revoke_others {
        eprintln!("{revoked} earlier tokens are revoked");
    }
    hint_followed();
    Ok(())
}

fn revoke(path: &Path, role: Option<TokenRole>, devices: &[Serial]) -> Result<(), Box<dyn Error>> {
    let mut tokens = if path.exists() { Tokens::load(path)? } else { Tokens::default() };
    let mut revoked = role.map_or(0, |role| tokens.revoke(role.into()));
    revoked += devices.iter().filter(|serial| tokens.revoke_device(**serial)).count();
    tokens.save(path)?;
    eprintln!("{revoked} tokens are revoked");
    hint_followed();
    Ok(())
}

fn device_tokens(issuer: &Issuer, number: u32, out: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let mut lines = Vec::new();
    for _ in 0..number {
        lines.push(issuer.mint()?.to_string());
    }
    match out {
        Some(out) => {
            write_token(out, &lines.join("\n"))?;
            eprintln!("{number} tokens are in {}", out.display());
        }
        None => lines.iter().for_each(|line| out!("{line}")),
    }
    Ok(())
}

fn hint_followed() {
    eprintln!("hint: a running service takes this into use within seconds");
}

fn show(keys: &Keys) {
    out!("verification key {}", keys.verification_key());
    for key in keys.sealing_keys() {
        let state = match key.state {
            KeyState::Pending => "pending",
            KeyState::Active => "active",
            KeyState::Expired => "expired",
        };
        out!("sealing key {:>3}  {}  {state}", key.id, key.key);
    }
}

fn hint_reload() {
    eprintln!("hint: a running shuffler takes it into use on SIGHUP");
}
