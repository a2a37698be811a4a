//! Servers that a study starts, and stops whatever happens.

use super::{
    catalogue::Way,
    configuration::Service,
    contestant::{Contestant, Program, file_name},
    orchestration,
    place::{Namespace, inside},
};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{
    collections::HashSet,
    fs::File,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// How long a server may take to listen: making its tables and keys, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a server may take to end before it is killed.
const FAREWELL: Duration = Duration::from_secs(5);
/// Lines of a server's log that are shown when it ends at once.
const LOG_LINES: usize = 6;

/// A server that is not a contestant: what is behind them.
pub struct Helper<'a> {
    /// The name under which it is shown.
    pub name: &'static str,
    /// The program.
    pub program: &'a Path,
    /// What stands before the name of its configuration.
    pub before: &'static [&'static str],
    /// The configuration.
    pub text: String,
}

/// A process of ours. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    /// The contestant's name, or that of a [`Helper`].
    pub name: String,
    /// The address on which the process listens.
    pub address: SocketAddr,
    /// What was run, as one would type it.
    pub command: String,
    /// Where the tunnels lead that its clients ask it for; none: they ask for none.
    pub leads_to: Option<SocketAddr>,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a contestant and waits until it listens.
    ///
    /// # Errors
    /// If its files cannot be written, or it does not start or does not listen in time, with its last output.
    pub fn start(
        contestant: &mut Contestant,
        service: &Service,
        directory: &Path,
        namespace: &Namespace,
    ) -> Result<Server, String> {
        let directory = directory.join(&contestant.name);
        let cannot = |e: std::io::Error| format!("{}: {e}", directory.display());
        std::fs::create_dir_all(&directory).map_err(cannot)?;
        let text = service.configuration(contestant, &directory);
        let file = directory.join(match contestant.program {
            Program::Penstock | Program::Haproxy => "haproxy.cfg",
            Program::Nginx => "nginx.conf",
            Program::Squid => "squid.conf",
            Program::Sslsplit => "sslsplit.conf",
        });
        std::fs::write(&file, &text).map_err(cannot)?;
        contestant.configuration = public(&text, directory.parent());
        if contestant.program == Program::Squid {
            orchestration::prepare_squid(contestant, &directory)?;
        }
        // What Squid calls its shared memory.
        let name = format!("penstock{}x{}", std::process::id(), service.listen.port());
        let one = service.cpus.len() == 1;
        let file = file.display().to_string();
        let arguments: Vec<&str> = match contestant.program {
            Program::Penstock | Program::Haproxy => vec!["-db", "-f", &file],
            Program::Nginx => vec!["-c", &file],
            Program::Sslsplit => vec!["-f", &file],
            Program::Squid => vec![if one { "-N" } else { "--foreground" }, "-n", &name, "-f", &file],
        };
        let mut command = Command::new(&contestant.path);
        let mut environment = contestant.environment.clone();
        if contestant.program == Program::Sslsplit {
            environment.extend(orchestration::trusted(service));
        }
        command.args(&arguments).envs(environment.iter().map(|(k, v)| (k, v)));
        let environment: String = environment.iter().map(|(k, v)| format!("{k}={v} ")).collect();
        let shown = format!("{environment}{} {}", contestant.program_name(), arguments.join(" "));
        let shown = public(&shown, directory.parent());
        let mut server =
            Server::spawn(&contestant.name, command, shown, service.listen, &service.cpus, &directory, namespace)?;
        if let Way::Tunnel { .. } = service.way {
            let led = service.origin.filter(|_| contestant.program != Program::Sslsplit);
            server.leads_to = led.map(|(_, address)| address);
        }
        Ok(server)
    }

    /// Starts what is not a contestant.
    ///
    /// # Errors
    /// If its files cannot be written, or it does not start or does not listen in time, with its last output.
    pub fn helper(
        helper: &Helper,
        listen: SocketAddr,
        cpus: &[u32],
        directory: &Path,
        namespace: &Namespace,
    ) -> Result<Server, String> {
        let file = directory.join("configuration");
        let written = std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&file, &helper.text));
        written.map_err(|e| format!("{}: {e}", file.display()))?;
        let mut command = Command::new(helper.program);
        command.args(helper.before).arg(&file);
        let words = format!("{} {} {}", file_name(helper.program), helper.before.join(" "), file.display());
        let shown = public(&words, directory.parent());
        Server::spawn(helper.name, command, shown, listen, cpus, directory, namespace)
    }

    fn spawn(
        name: &str,
        mut command: Command,
        shown: String,
        address: SocketAddr,
        cpus: &[u32],
        directory: &Path,
        namespace: &Namespace,
    ) -> Result<Server, String> {
        let cannot = |e: std::io::Error| format!("{name} does not start: {e}");
        let log = directory.join("output");
        let out = File::create(&log).map_err(cannot)?;
        let err = out.try_clone().map_err(cannot)?;
        // A group of its own: the terminal's Ctrl-C is for us, who stop it in our own order.
        command.current_dir(directory).stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let child = inside(cpus, namespace, || command.spawn()).and_then(|spawned| spawned).map_err(cannot)?;
        let mut server = Server { name: name.into(), address, command: shown, leads_to: None, child, log };
        let taskset: Vec<String> = cpus.iter().map(u32::to_string).collect();
        server.command = format!("taskset -c {} {}", taskset.join(","), server.command);
        server.wait_listening(namespace)?;
        Ok(server)
    }

    fn wait_listening(&mut self, namespace: &Namespace) -> Result<(), String> {
        let began = Instant::now();
        loop {
            if !self.is_running() {
                return Err(format!("{} ended at once: {}", self.name, self.last_words()));
            }
            let address = self.address;
            let connected =
                inside(&[], namespace, || TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok());
            if connected.unwrap_or(false) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{} does not listen on {address}: {}", self.name, self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The last lines of the process's output.
    #[must_use]
    pub fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
        if last.is_empty() { "it said nothing".into() } else { last.join(" | ") }
    }

    /// The process's id; its children count with it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn end(&mut self) {
        if !self.is_running() {
            return;
        }
        let shared = shared_memory(self.child.id());
        self.terminate();
        // Some leave theirs behind, even if they are given time to end; who does not has removed it.
        for file in shared {
            let _ = std::fs::remove_file(file);
        }
    }

    fn terminate(&mut self) {
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else { return };
        // It may end by itself meanwhile.
        let _ = kill_process(pid, Signal::TERM);
        let began = Instant::now();
        while began.elapsed() < FAREWELL {
            if !self.is_running() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// `text` as it may be published: files by their place below the study's own folder.
fn public(text: &str, folder: Option<&Path>) -> String {
    match folder {
        Some(folder) => text.replace(&format!("{}/", folder.display()), ""),
        None => text.to_owned(),
    }
}

/// The named shared memory that a process and its children have mapped (shm_overview(7), proc_pid_maps(5)).
fn shared_memory(pid: u32) -> HashSet<PathBuf> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let pids = std::iter::once(pid.to_string()).chain(children.split_whitespace().map(str::to_owned));
    let maps = pids.map(|pid| std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default());
    let mut files = HashSet::new();
    for map in maps {
        // The path is the last of six columns.
        let paths = map.lines().filter_map(|line| line.split_whitespace().nth(5));
        files.extend(paths.filter(|path| path.starts_with("/dev/shm/")).map(PathBuf::from));
    }
    files
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A port of this address, in this namespace, on which nothing listens now.
///
/// # Errors
/// The address is not one of this machine's.
pub fn free_port(address: IpAddr, namespace: &Namespace) -> Result<SocketAddr, String> {
    let bound = inside(&[], namespace, || TcpListener::bind((address, 0)).and_then(|socket| socket.local_addr()));
    bound.and_then(|found| found).map_err(|e| format!("no port of {address} can be had: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(script: &str, listen: SocketAddr) -> Result<Server, String> {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Server::spawn("it", command, "sh".into(), listen, &[], directory.path(), &None)
    }

    #[test]
    fn shared_memory_does_not_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = format!("/dev/shm/penstock-study-{}", std::process::id());
        let script = format!(
            "cd /; exec python3 -c 'import mmap, time; f = open(\"{name}\", \"w+b\"); f.truncate(9); m = mmap.mmap(f.fileno(), 9); time.sleep(60)'"
        );
        let server = started(&script, listener.local_addr().unwrap()).unwrap();
        let began = Instant::now();
        while shared_memory(server.pid()).is_empty() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(shared_memory(server.pid()), HashSet::from([PathBuf::from(&name)]));
        drop(server);
        assert!(!Path::new(&name).exists());
    }

    #[test]
    fn what_ends_at_once_is_quoted() {
        let why = started("echo first; echo no such option >&2; exit 1", "127.0.0.1:1".parse().unwrap()).unwrap_err();
        assert_eq!(why, "it ended at once: first | no such option");
    }

    #[test]
    fn a_server_goes_with_its_handle() {
        // Somebody else listens there: the process counts as started.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = started("sleep 60", listener.local_addr().unwrap()).unwrap();
        let process = format!("/proc/{}", server.pid());
        assert!(Path::new(&process).exists());
        drop(server);
        assert!(!Path::new(&process).exists());
    }
}
