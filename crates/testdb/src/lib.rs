//! A PostgreSQL server of a test's own: on a free port of the loopback device, not as root, with
//! the distribution's programs, and gone with the process that started it, however that ends.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Who nodes are: the owner of every database, with no other rights.
pub const USER: &str = "incrowd";
/// The superuser, with a database of the same name.
const SUPERUSER: &str = "postgres";
/// The oldest server that nodes take.
const OLDEST: u32 = 15;
/// Free bytes that a file system in memory must have for a server.
const ROOM: u64 = 1 << 30;
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

    /// The same, which takes connections over TLS only, and from [`USER`] with this password only.
    /// Certificate and key are PEM.
    pub fn start_with_tls(certificate: &str, key: &str, password: &str) -> Self {
        let server = Self::start(&[]);
        server.sql(SUPERUSER, &format!("ALTER ROLE {USER} PASSWORD '{password}'"));
        for (name, content) in [("server.crt", certificate), ("server.key", key)] {
            let path = server.data().join(name);
            fs::write(&path, content).expect("a file of the server");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
            hand_over(&path);
        }
        let who = format!("host all {SUPERUSER} all trust\nhostssl all {USER} all scram-sha-256\n");
        fs::write(server.data().join("pg_hba.conf"), who).expect("who may connect");
        server.sql(SUPERUSER, "ALTER SYSTEM SET ssl = on");
        server.stop();
        server.start_again();
        server
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
            command.args(["--username", SUPERUSER, "--auth", "trust", "--no-sync"]);
            command.args(["--encoding", "UTF8", "--locale", "C"]);
        });
        let server = Self::serve(folder, settings);
        server.sql(SUPERUSER, &format!("CREATE ROLE {USER} LOGIN"));
        server
    }

    /// Starts a standby of another server, which was started with `wal_level=replica`. It calls
    /// itself by this name.
    pub fn standby_of(primary: &Self, name: &str, settings: &[&str]) -> Self {
        let folder = private_folder();
        let data = folder.path().join("data");
        let from = format!(
            "host=127.0.0.1 port={} user={SUPERUSER} application_name={name}",
            primary.port
        );
        run("pg_basebackup", &["-D".as_ref(), data.as_os_str()], |command| {
            command.args(["-R", "-c", "fast", "--no-sync", "-d", &from]);
        });
        Self::serve(folder, settings)
    }

    fn serve(folder: TempDir, settings: &[&str]) -> Self {
        let file = folder.path().join("data/postgresql.auto.conf");
        let before = fs::read_to_string(&file).expect("the settings can be read");
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("a shell");
        let mut server = Self { folder, port: 0, keeper: Some(keeper) };
        // Somebody else may take a port between the look and the start.
        for _ in 0..5 {
            server.port = free_ports(1)[0];
            let lines = format!(
                "\nport = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\n\
                 max_connections = 200\nshared_buffers = 32MB\n{}\n",
                server.port,
                settings.join("\n")
            );
            fs::write(&file, format!("{before}{lines}")).expect("the settings can be written");
            if server.try_to_start() {
                return server;
            }
        }
        panic!("the server does not start:\n{}", server.log());
    }

    /// Starts it after [`Self::stop`].
    pub fn start_again(&self) {
        assert!(self.try_to_start(), "the server does not start again:\n{}", self.log());
    }

    fn try_to_start(&self) -> bool {
        let (data, log) = (self.data(), self.folder.path().join("log"));
        let mut command = program("pg_ctl");
        command.arg("-D").arg(data).arg("-l").arg(log).args(["--wait", "--silent", "start"]);
        // The server would inherit them, for as long as it runs.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().expect("pg_ctl runs").success()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
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

    /// A copy of its files, which is whole only while it is stopped.
    pub fn copy(&self) -> TempDir {
        let folder = private_folder();
        copy_all(&self.data(), &folder.path().join("data"));
        folder
    }

    /// Puts a copy in the place of its files, while it is stopped.
    pub fn put_back(&self, copy: &TempDir) {
        fs::remove_dir_all(self.data()).expect("its files can be removed");
        copy_all(&copy.path().join("data"), &self.data());
    }

    /// Makes a standby take commits. It no longer waits for another one.
    pub fn promote(&self) {
        self.set("synchronous_standby_names", "");
        self.sql(SUPERUSER, "SELECT pg_promote(true, 60)");
    }

    /// Changes a setting while the server runs; sessions take note of it a moment later.
    pub fn set(&self, setting: &str, value: &str) {
        self.sql(SUPERUSER, &format!("ALTER SYSTEM SET {setting} = '{value}'"));
        self.sql(SUPERUSER, "SELECT pg_reload_conf()");
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

    /// Makes a database of [`USER`]. Its URL.
    pub fn create(&self, database: &str) -> String {
        self.sql(SUPERUSER, &format!("CREATE DATABASE {database} OWNER {USER}"));
        self.url(database)
    }

    /// What a statement answers, one line for each row, columns divided by `|`. In the database
    /// `postgres` it is the superuser's, elsewhere that of [`USER`].
    pub fn sql(&self, database: &str, statement: &str) -> String {
        let user = if database == SUPERUSER { SUPERUSER } else { USER };
        let url = format!("postgres://{user}@{}/{database}", self.address());
        let output = run("psql", &[], |command| {
            command.args(["--no-psqlrc", "--no-align", "--tuples-only", "--quiet"]);
            command.args(["-v", "ON_ERROR_STOP=1", "--dbname", &url]);
            command.args(["--command", statement]);
        });
        String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
    }

    /// Does a statement in a session that stays until the answer is dropped, and with it its locks.
    pub fn hold(&self, database: &str, statement: &str) -> Held {
        let mut command = program("psql");
        command.args(["--no-psqlrc", "--no-align", "--tuples-only", "--quiet"]);
        command.args(["-v", "ON_ERROR_STOP=1", "--dbname", &self.url(database)]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut session = command.spawn().expect("psql runs");
        let (input, output) = (session.stdin.as_mut(), session.stdout.as_mut());
        let (input, output) = input.zip(output).expect("they are piped");
        writeln!(input, "{statement};\n\\echo done").expect("psql listens");
        let mut lines = BufReader::new(output).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line == "done")), "{statement}");
        Held(session)
    }

    /// Writes a base backup, as an archive would have it, into a new folder.
    pub fn base_backup(&self) -> TempDir {
        let folder = private_folder();
        let to = folder.path().join("backup");
        run("pg_basebackup", &["-D".as_ref(), to.as_os_str()], |command| {
            let url = format!("postgres://{SUPERUSER}@{}/{SUPERUSER}", self.address());
            command.args(["-c", "fast", "--no-sync", "-d", &url]);
        });
        folder
    }
}

/// A session that is still there.
pub struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Fails only if somebody else has ended it.
        let _ = self.0.wait();
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

/// Ports that no outgoing connection is given while the server that has one is stopped.
pub fn free_ports(number: usize) -> Vec<u16> {
    /// Calls of this process, each of which looks elsewhere.
    static CALLS: AtomicU16 = AtomicU16::new(0);
    let mut held = Vec::new();
    let own =
        std::process::id() as u16 % 10_000 + 500 * CALLS.fetch_add(1, Ordering::Relaxed) % 10_000;
    for port in (10_000 + own..30_000).step_by(7) {
        held.extend(TcpListener::bind(("127.0.0.1", port)).ok().map(|socket| (port, socket)));
        if held.len() == number {
            return held.into_iter().map(|(port, _)| port).collect();
        }
    }
    panic!("no port is free");
}

/// A folder that the user of the server may use: in `INCROWD_TESTDB`, or in memory where there is
/// room, because what ends here are processes, not the machine.
fn private_folder() -> TempDir {
    let memory = || Some(PathBuf::from("/dev/shm")).filter(|path| free(path) >= ROOM);
    let parent = std::env::var_os("INCROWD_TESTDB").map(PathBuf::from).or_else(memory);
    private_folder_in(&parent.unwrap_or_else(std::env::temp_dir))
}

/// Bytes that a file system has left.
fn free(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |found| found.f_bavail * found.f_frsize)
}

fn private_folder_in(parent: &Path) -> TempDir {
    let folder = tempfile::Builder::new().prefix("incrowd-testdb-").tempdir_in(parent);
    let folder = folder.expect("a folder");
    hand_over(folder.path());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("a folder");
    folder
}

fn copy_all(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp runs").success(), "{} cannot be copied", from.display());
}

/// Makes the user of the server the owner.
fn hand_over(path: &Path) {
    if is_root() {
        let owned = Command::new("chown").arg("postgres:").arg(path).status();
        assert!(owned.expect("chown runs").success(), "the user postgres is missing: run ./test");
    }
}

/// Runs one of PostgreSQL's programs.
fn run(name: &str, arguments: &[&OsStr], more: impl FnOnce(&mut Command)) -> Output {
    let mut command = program(name);
    command.args(arguments);
    more(&mut command);
    let output = command.output().unwrap_or_else(|error| panic!("{name}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {said}");
    output
}

/// One of PostgreSQL's programs, as another user than root.
fn program(name: &str) -> Command {
    let path = programs().join(name);
    let mut command = Command::new(&path);
    if is_root() {
        command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]).arg(path);
    }
    command.current_dir("/").stdin(Stdio::null());
    command
}

/// The folder of the newest PostgreSQL server on this machine.
fn programs() -> PathBuf {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &Path| -> Option<u32> { path.file_name()?.to_str()?.parse().ok() };
    let usable = installed
        .map(|entry| entry.path())
        .filter(|path| path.join("bin/initdb").exists() && version(path) >= Some(OLDEST));
    let newest = usable.max_by_key(|path| version(path)).map(|path| path.join("bin"));
    newest.expect("PostgreSQL 15 or newer is installed: ./test does that")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
