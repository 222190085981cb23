//! Keys that a program has, for a KMS or a TPM.

use std::{
    fmt::Display,
    io::Read,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use incrowd_protocol::TaskId;
use zeroize::Zeroizing;

use super::{RoundKey, RoundKeyError, RoundKeys};

/// How long the program may take.
const LIMIT: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(2);
/// Bytes that it may print.
const LONGEST: u64 = 1024;

/// Runs `COMMAND... get-or-create|get|destroy-before TASK ROUND`. It prints a key as 64 hex digits;
/// `get` prints nothing where there is none. Every exit code but 0 is a failure.
pub(super) struct KeyCommand {
    program: String,
    arguments: Vec<String>,
    limit: Duration,
}

impl KeyCommand {
    pub fn new(command: &[String]) -> Result<Self, RoundKeyError> {
        let (program, arguments) = command.split_first().ok_or(RoundKeyError::NoCommand)?;
        Ok(Self { program: program.clone(), arguments: arguments.to_vec(), limit: LIMIT })
    }

    fn failed(&self, operation: &'static str, reason: &dyn Display) -> RoundKeyError {
        let (program, reason) = (self.program.clone(), reason.to_string());
        RoundKeyError::Command { program, operation, reason }
    }

    /// What the program prints.
    fn run(
        &self,
        operation: &'static str,
        task: &TaskId,
        round: u32,
    ) -> Result<Zeroizing<Vec<u8>>, RoundKeyError> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .args([operation, &task.to_string(), &round.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| self.failed(operation, &error))?;
        let stdout = child.stdout.take().expect("invariant: it was asked for");
        let reader = thread::spawn(move || {
            let mut printed = Zeroizing::new(Vec::with_capacity(LONGEST as usize + 1));
            stdout.take(LONGEST + 1).read_to_end(&mut printed).map(|_| printed)
        });
        // The pipe may stay open in a child of the program: it is read only when it has ended well.
        self.wait(operation, &mut child, &reader)?;
        let printed = reader.join().map_err(|_| self.failed(operation, &"cannot be read"))?;
        let printed = printed.map_err(|error| self.failed(operation, &error))?;
        if printed.len() as u64 > LONGEST {
            return Err(self.failed(operation, &"prints more than a key"));
        }
        Ok(printed)
    }

    /// Waits until the program has ended well and closed its output.
    fn wait<T>(
        &self,
        operation: &'static str,
        child: &mut Child,
        reader: &thread::JoinHandle<T>,
    ) -> Result<(), RoundKeyError> {
        let end = Instant::now() + self.limit;
        while Instant::now() < end {
            let ended = child.try_wait().map_err(|error| self.failed(operation, &error))?;
            match ended {
                Some(status) if !status.success() => return Err(self.failed(operation, &status)),
                Some(_) if reader.is_finished() => return Ok(()),
                _ => thread::sleep(STEP),
            }
        }
        // Fails only if it has ended meanwhile.
        let _ = child.kill();
        let _ = child.wait();
        Err(self.failed(operation, &format!("no end within {} s", self.limit.as_secs_f64())))
    }

    fn key(
        &self,
        operation: &'static str,
        task: &TaskId,
        round: u32,
    ) -> Result<Option<RoundKey>, RoundKeyError> {
        let printed = self.run(operation, task, round)?;
        let text = printed.trim_ascii();
        if text.is_empty() {
            return Ok(None);
        }
        let mut bytes = Zeroizing::new([0; 32]);
        hex::decode_to_slice(text, bytes.as_mut_slice())
            .map_err(|_| self.failed(operation, &"does not print 64 hex digits"))?;
        Ok(Some(RoundKey::from_bytes(&bytes)))
    }
}

impl RoundKeys for KeyCommand {
    fn get_or_create(&self, task: &TaskId, round: u32) -> Result<RoundKey, RoundKeyError> {
        let operation = "get-or-create";
        let key = self.key(operation, task, round)?;
        key.ok_or_else(|| self.failed(operation, &"prints no key"))
    }

    fn get(&self, task: &TaskId, round: u32) -> Result<Option<RoundKey>, RoundKeyError> {
        self.key("get", task, round)
    }

    fn destroy_before(&self, task: &TaskId, round: u32) -> Result<(), RoundKeyError> {
        self.run("destroy-before", task, round).map(drop)
    }

    fn describe(&self) -> String {
        format!("command {}: what survives what is its own matter", self.program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> KeyCommand {
        let command = ["sh", "-c", script, "helper"].map(str::to_owned);
        KeyCommand { limit: Duration::from_secs(2), ..KeyCommand::new(&command).unwrap() }
    }

    #[test]
    fn a_program_that_fails_is_not_one_without_a_key() {
        let task = "ab".repeat(32).parse().unwrap();
        let key = "0123456789abcdef".repeat(4);
        let good = shell(&format!("echo {key}")).get(&task, 1).unwrap().unwrap();
        assert_eq!(hex::encode(good.bytes()), key);
        assert!(shell("exit 0").get(&task, 1).unwrap().is_none());
        // The arguments, in order.
        let told = format!("test \"$*\" = \"get {task} 7\" && echo {key}");
        assert!(shell(&told).get(&task, 7).unwrap().is_some());
        let exits = format!("echo {key}; exit 3");
        for (script, reason) in [
            (exits.as_str(), "exit status: 3"),
            ("echo 0123", "does not print 64 hex digits"),
            ("yes | head -c 3000", "prints more than a key"),
            ("sleep 60", "no end within 2 s"),
            ("sleep 60 & exit 0", "no end within 2 s"),
        ] {
            let error = shell(script).get(&task, 1).err().unwrap().to_string();
            assert!(error.contains(reason), "{script}: {error}");
            assert!(error.starts_with("sh get: ") && !error.contains(&key), "{error}");
        }
        let error = shell("exit 0").get_or_create(&task, 1).err().unwrap().to_string();
        assert!(error.contains("prints no key"), "{error}");
        assert!(matches!(KeyCommand::new(&[]), Err(RoundKeyError::NoCommand)));
        let missing = KeyCommand::new(&["/no/helper".to_owned()]).unwrap();
        assert!(missing.destroy_before(&task, 2).is_err());
    }
}
