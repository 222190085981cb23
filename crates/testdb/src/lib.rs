//! A PostgreSQL server of a test's own: on a free port of the loopback device, not as root, with the
//! distribution's programs, and gone with the process that started it, however that ends.

use std::{
    ffi::OsStr,
    fs,
    net::TcpListener,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// The superuser of the server, and of every database.
pub const USER: &str = "incrowd";
/// How long a server has to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends the server by its id and removes its folder when the process that holds the other end of
/// standard input is gone.
const KEEPER: &str = r#"cat > /dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2> /dev/null) && kill -QUIT "$pid" 2> /dev/null
while [ -n "$pid" ] && kill -0 "$pid" 2> /dev/null; do sleep 0.02; done
rm -rf "$1""#;

/// A server. Dropped, it ends.
pub struct Server {
    folder: TempDir,
    port: u16,
    keeper: Option<Child>,
}

impl Server {
    /// Starts a new one with these further settings (`name=value`).
    pub fn start(settings: &[&str]) -> Self {
        Self::initialize(private_folder(), settings)
    }

    /// The same with its files below a folder, for example on a disk that is measured too.
    pub fn start_in(parent: &Path, settings: &[&str]) -> Self {
        // The user of the server must come there.
        fs::set_permissions(parent, fs::Permissions::from_mode(0o755)).expect("a folder");
        Self::initialize(private_folder_in(parent), settings)
    }

    fn initialize(folder: TempDir, settings: &[&str]) -> Self {
        let data = folder.path().join("data");
        run("initdb", &["-D".as_ref(), data.as_os_str()], |command| {
            command.args(["--wal-segsize", "1"]);
            command.args(["--username", USER, "--auth", "trust", "--no-sync"]);
            command.args(["--encoding", "UTF8", "--locale", "C"]);
        });
        Self::serve(folder, settings)
    }

    /// Starts a standby of another server, which was started with `wal_level=replica`. It calls
    /// itself by this name.
    pub fn standby_of(primary: &Self, name: &str, settings: &[&str]) -> Self {
        let folder = private_folder();
        let data = folder.path().join("data");
        let from =
            format!("host=127.0.0.1 port={} user={USER} application_name={name}", primary.port);
        run("pg_basebackup", &["-D".as_ref(), data.as_os_str()], |command| {
            command.args(["-R", "-c", "fast", "--no-sync", "-d", &from]);
        });
        Self::serve(folder, settings)
    }

    fn serve(folder: TempDir, settings: &[&str]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let lines = format!(
            "\nport = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\n\
             max_connections = 200\nshared_buffers = 32MB\n{}\n",
            settings.join("\n")
        );
        let data = folder.path().join("data");
        let file = data.join("postgresql.auto.conf");
        let before = fs::read_to_string(&file).expect("the settings can be read");
        fs::write(&file, before + &lines).expect("the settings can be written");
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("a shell");
        let server = Self { folder, port, keeper: Some(keeper) };
        server.start_again();
        server
    }

    /// Starts it after [`Self::stop`].
    pub fn start_again(&self) {
        let (data, log) = (self.data(), self.folder.path().join("log"));
        let arguments = ["-D".as_ref(), data.as_os_str(), "-l".as_ref(), log.as_os_str()];
        run("pg_ctl", &arguments, |command| {
            command.args(["--wait", "--silent", "start"]);
        });
    }

    /// Stops it as a crash would: nothing is written down, sessions end without a word.
    pub fn stop(&self) {
        let pid = self.pid();
        signal("QUIT", pid);
        let end = Instant::now() + PATIENCE;
        while Path::new(&format!("/proc/{pid}")).exists() {
            assert!(Instant::now() < end, "the server does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Makes a standby take commits. It no longer waits for another one.
    pub fn promote(&self) {
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = ''");
        self.sql("postgres", "SELECT pg_reload_conf()");
        self.sql("postgres", "SELECT pg_promote(true, 60)");
    }

    /// The id of its first process.
    pub fn pid(&self) -> u32 {
        let text = fs::read_to_string(self.data().join("postmaster.pid"));
        let text = text.expect("the server runs");
        text.lines().next().and_then(|line| line.parse().ok()).expect("a process id")
    }

    /// Seconds of processor time that all of its processes took so far.
    pub fn processor(&self) -> f64 {
        let seconds = |pid: u32, numbers: std::ops::Range<usize>| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split(' ').collect();
            let ticks = fields.get(numbers).unwrap_or_default().iter();
            ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
        };
        let first = self.pid();
        let children = fs::read_to_string(format!("/proc/{first}/task/{first}/children"));
        let children = children.unwrap_or_default();
        let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        // Its own, that of the children that ended, and that of the others.
        seconds(first, 12..16) + children.map(|pid| seconds(pid, 12..14)).sum::<f64>()
    }

    /// Where its tables and its write-ahead log are.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The URL of one of its databases.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.address())
    }

    /// Makes a database. Its URL.
    pub fn create(&self, database: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {database}"));
        self.url(database)
    }

    /// What a statement answers, one line for each row, columns divided by `|`.
    pub fn sql(&self, database: &str, statement: &str) -> String {
        let output = run("psql", &[], |command| {
            command.args(["--no-psqlrc", "--no-align", "--tuples-only", "--quiet"]);
            command.args(["-v", "ON_ERROR_STOP=1", "--dbname", &self.url(database)]);
            command.args(["--command", statement]);
        });
        String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
    }

    /// Writes a base backup, as an archive would have it, into a new folder.
    pub fn base_backup(&self) -> TempDir {
        let folder = private_folder();
        let to = folder.path().join("backup");
        run("pg_basebackup", &["-D".as_ref(), to.as_os_str()], |command| {
            command.args(["-c", "fast", "--no-sync", "-d", &self.url("postgres")]);
        });
        folder
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            // Fails only if somebody else has ended it.
            let _ = keeper.wait();
        }
    }
}

/// Sends a signal to a process by its id.
pub fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status();
    assert!(sent.expect("kill runs").success(), "process {pid} is not there");
}

/// A folder that the user of the server may use. In memory where that is possible: what ends here
/// are processes, not the machine.
fn private_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let chosen = std::env::var_os("INCROWD_TESTDB").map(PathBuf::from);
    let parent = chosen
        .unwrap_or_else(|| if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() });
    private_folder_in(&parent)
}

fn private_folder_in(parent: &Path) -> TempDir {
    let folder = tempfile::Builder::new().prefix("incrowd-testdb-").tempdir_in(parent);
    let folder = folder.expect("a folder");
    if is_root() {
        let owned = Command::new("chown").arg("postgres").arg(folder.path()).status();
        assert!(owned.expect("chown runs").success(), "the user postgres is missing: run ./test");
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("a folder");
    folder
}

/// Runs one of PostgreSQL's programs, as another user than root.
fn run(program: &str, arguments: &[&OsStr], more: impl FnOnce(&mut Command)) -> Output {
    let path = programs().join(program);
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]).arg(path);
        command
    } else {
        Command::new(path)
    };
    command.args(arguments).current_dir("/").stdin(Stdio::null());
    more(&mut command);
    if program == "pg_ctl" {
        // The server inherits what it is given here, for as long as it runs.
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    output
}

/// The folder of the newest PostgreSQL on this machine.
fn programs() -> PathBuf {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &Path| -> Option<u32> { path.file_name()?.to_str()?.parse().ok() };
    let newest = installed.map(|entry| entry.path()).max_by_key(|path| version(path));
    let newest = newest.map(|path| path.join("bin")).filter(|path| path.join("initdb").exists());
    newest.expect("PostgreSQL 15 or newer is installed: ./test does that")
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").expect("a process has itself").uid() == 0
}
