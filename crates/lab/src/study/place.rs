//! Placement: processors for the server, the clients and the backend servers, and threads put onto them.

use penstock_doctor::{Cpu, Host};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

/// The processors and machines on which the parts of a study run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Processors of the server at each step: how many cores, and which threads of them.
    pub steps: Vec<Step>,
    /// Processors of the clients.
    pub clients: Vec<u32>,
    /// Processors of the backend servers; empty where there are none.
    pub origin: Vec<u32>,
    /// Machines that were the clients instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// Every core of the machine with its threads, in order.
    pub cores: Vec<Vec<u32>>,
}

/// Some cores of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The number of cores.
    pub cores: usize,
    /// Their threads.
    pub cpus: Vec<u32>,
}

impl Step {
    /// `4C8T`
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}C{}T", self.cores, self.cpus.len())
    }
}

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub struct Asked<'a> {
    /// Cores of the server, one after the other.
    pub steps: &'a [usize],
    /// Threads of each of them.
    pub threads_per_core: usize,
    /// Cores are taken from each socket in turn, not from the first as long as it has some.
    pub across_sockets: bool,
    /// Processors, where they were named.
    pub server: &'a [u32],
    /// Processors of the clients, where they were named.
    pub clients: &'a [u32],
    /// Processors of the backend servers, where they were named.
    pub origin: &'a [u32],
    /// Whether there are backend servers.
    pub has_origin: bool,
    /// Whether the clients are other machines.
    pub has_agents: bool,
}

/// Gives each part its processors; what could not be given is returned as sentences.
///
/// # Errors
/// Not one step fits.
pub fn place(host: &Host, asked: &Asked) -> Result<(Placement, Vec<String>), String> {
    let cpu = Cpu::of(host);
    for (option, list) in
        [("--server-cores", asked.server), ("--client-cores", asked.clients), ("--origin-cores", asked.origin)]
    {
        if let Some(absent) = list.iter().find(|number| !cpu.online.contains(number)) {
            return Err(format!("{option}: there is no processor {absent} here"));
        }
    }
    let cores = cores_of(&cpu);
    let in_order = if asked.across_sockets { by_turns(&cpu, &cores) } else { cores.clone() };
    let allowed = |number: &u32| asked.server.is_empty() || asked.server.contains(number);
    // The clients' own processors are not the server's, unless the caller says so.
    let free =
        |number: &u32| !asked.server.is_empty() || !(asked.clients.contains(number) || asked.origin.contains(number));
    let usable: Vec<Vec<u32>> = in_order
        .iter()
        .map(|threads| threads.iter().copied().filter(|n| allowed(n) && free(n)).take(asked.threads_per_core).collect())
        .filter(|threads: &Vec<u32>| !threads.is_empty())
        .collect();
    // The load generator needs a core: one is kept for it, where there is more than one.
    let kept =
        usize::from(asked.server.is_empty() && asked.clients.is_empty() && !asked.has_agents && usable.len() > 1);
    let most = usable.len() - kept.min(usable.len());
    let (fit, too_many): (Vec<usize>, Vec<usize>) = asked.steps.iter().partition(|step| **step <= most);
    let short = || {
        let list: Vec<String> = too_many.iter().map(usize::to_string).collect();
        let clients = if kept > 0 { ", one more is the clients'" } else { "" };
        format!(
            "{} cores for the server: there {} {most} here{clients}",
            list.join(", "),
            if most == 1 { "is" } else { "are" }
        )
    };
    let Some(widest) = fit.last() else {
        return Err(format!("{}; --steps and --server-cores choose others, --quick takes one", short()));
    };
    let steps: Vec<Step> = fit.iter().map(|cores| Step { cores: *cores, cpus: usable[..*cores].concat() }).collect();
    let server = usable[..*widest].concat();
    let rest: Vec<u32> = cpu.online.iter().copied().filter(|number| !server.contains(number)).collect();
    let rest = if rest.is_empty() { cpu.online.clone() } else { rest };
    // What is left is shared: the clients decrypt, which costs more than sending files.
    let left = rest.len().div_ceil(3) * 2;
    let (first, second) = if asked.has_origin && rest.len() > 1 {
        rest.split_at(left.min(rest.len() - 1))
    } else {
        (&rest[..], &rest[..])
    };
    let or = |named: &[u32], otherwise: &[u32]| if named.is_empty() { otherwise.to_vec() } else { named.to_vec() };
    let clients = if asked.has_agents { Vec::new() } else { or(asked.clients, first) };
    let origin = if asked.has_origin { or(asked.origin, second) } else { Vec::new() };
    let complaints = if too_many.is_empty() { Vec::new() } else { vec![short()] };
    Ok((Placement { steps, clients, origin, agents: Vec::new(), cores }, complaints))
}

/// Every core with its threads.
fn cores_of(cpu: &Cpu) -> Vec<Vec<u32>> {
    let threads = |first: u32| match cpu.siblings.get(&first) {
        Some(list) => list.iter().copied().filter(|number| cpu.online.contains(number)).collect(),
        None => vec![first],
    };
    cpu.first_threads().into_iter().map(threads).collect()
}

/// The first core of each socket, then the second of each, and so on.
fn by_turns(cpu: &Cpu, cores: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let mut sockets: BTreeMap<u32, Vec<Vec<u32>>> = BTreeMap::new();
    for core in cores {
        let socket = core.first().and_then(|thread| cpu.sockets.get(thread)).copied().unwrap_or(0);
        sockets.entry(socket).or_default().push(core.clone());
    }
    let most = sockets.values().map(Vec::len).max().unwrap_or(0);
    (0..most).flat_map(|turn| sockets.values().filter_map(move |cores| cores.get(turn).cloned())).collect()
}

impl Placement {
    /// Parts that run on the same processors, in words.
    #[must_use]
    pub fn overlaps(&self) -> Vec<String> {
        let server = self.steps.last().map_or(&[][..], |step| &step.cpus[..]);
        let pairs = [
            ("the server", server, "the clients", &self.clients[..]),
            ("the server", server, "the backend servers", &self.origin[..]),
            ("the clients", &self.clients[..], "the backend servers", &self.origin[..]),
        ];
        let shared = pairs.into_iter().filter(|(_, a, _, b)| a.iter().any(|number| b.contains(number)));
        shared.map(|(a, _, b, _)| format!("{a} and {b} share processors")).collect()
    }
}

/// A network namespace to be in; `None` is the one we are in.
pub type Namespace = Option<Arc<OwnedFd>>;

/// Runs something on these processors and in this namespace: threads and processes that it starts stay there.
///
/// # Errors
/// The system refuses.
pub fn inside<T: Send>(cpus: &[u32], namespace: &Namespace, run: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("placed".into()).spawn_scoped(scope, || {
            if !cpus.is_empty() {
                let mut set = CpuSet::new();
                cpus.iter().for_each(|number| set.set(*number as usize));
                sched_setaffinity(None, &set)?;
            }
            if let Some(namespace) = namespace {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            }
            Ok(run())
        })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads a core, numbered as Linux does: 0 and 8 are one core.
    fn eight_cores() -> Host {
        let mut text = String::from("== /sys/devices/system/cpu/online\n0-15\n");
        for number in 0..16 {
            text += &format!(
                "== /sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list\n{},{}\n",
                number % 8,
                number % 8 + 8
            );
        }
        Host::recorded(&text).unwrap()
    }

    fn asked(steps: &[usize]) -> Asked<'_> {
        Asked { steps, threads_per_core: 2, has_origin: true, ..Asked::default() }
    }

    #[test]
    fn the_server_gets_whole_cores_and_the_others_what_is_left() {
        let (placement, complaints) = place(&eight_cores(), &asked(&[2, 4])).unwrap();
        assert_eq!(placement.steps[1].cpus, [0, 8, 1, 9, 2, 10, 3, 11]);
        assert_eq!(placement.steps[1].name(), "4C8T");
        assert_eq!((placement.clients, placement.origin), (vec![4, 5, 6, 7, 12, 13], vec![14, 15]));
        assert!(complaints.is_empty());
    }

    #[test]
    fn each_socket_gives_a_core_before_one_gives_two() {
        let mut text = String::from("== /sys/devices/system/cpu/online\n0-7\n");
        for number in 0..8 {
            let socket = number / 4;
            text += &format!("== /sys/devices/system/cpu/cpu{number}/topology/physical_package_id\n{socket}\n");
        }
        let host = Host::recorded(&text).unwrap();
        let across = Asked { threads_per_core: 1, across_sockets: true, has_origin: false, ..asked(&[2, 3]) };
        let (placement, _) = place(&host, &across).unwrap();
        assert_eq!((&placement.steps[0].cpus, &placement.steps[1].cpus), (&vec![0, 4], &vec![0, 4, 1]));
        assert_eq!(placement.cores.concat(), [0, 1, 2, 3, 4, 5, 6, 7], "drawn in their own order");
    }

    #[test]
    fn steps_beyond_the_machine_are_left_out_with_a_sentence() {
        let (placement, complaints) = place(&eight_cores(), &asked(&[4, 8, 16])).unwrap();
        assert_eq!(placement.steps.len(), 1);
        assert_eq!(complaints, ["8, 16 cores for the server: there are 7 here, one more is the clients'"]);
        let why = place(&eight_cores(), &asked(&[32])).unwrap_err();
        assert!(why.starts_with("32 cores for the server: there are 7 here") && why.contains("--quick"), "{why}");
    }

    #[test]
    fn processors_that_are_named_are_taken() {
        let host = eight_cores();
        let named = Asked { server: &[1, 2], clients: &[3], origin: &[3], threads_per_core: 1, ..asked(&[1, 2]) };
        let (placement, _) = place(&host, &named).unwrap();
        assert_eq!((placement.steps[1].cpus.as_slice(), placement.clients.as_slice()), (&[1, 2][..], &[3][..]));
        assert_eq!(placement.overlaps(), ["the clients and the backend servers share processors"]);
        let absent = Asked { server: &[77], ..asked(&[1]) };
        assert_eq!(place(&host, &absent).unwrap_err(), "--server-cores: there is no processor 77 here");
    }

    #[test]
    fn one_processor_is_everybodys() {
        let host = Host::recorded("== /sys/devices/system/cpu/online\n0\n").unwrap();
        let (placement, _) = place(&host, &asked(&[1])).unwrap();
        assert_eq!((&placement.clients, &placement.origin), (&vec![0], &vec![0]));
        assert_eq!(placement.overlaps().len(), 3);
    }

    #[test]
    fn what_is_run_inside_is_where_it_was_put() {
        let mine = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..1024).find(|number| mine.is_set(*number)).unwrap() as u32;
        let set = inside(&[first], &None, || rustix::thread::sched_getaffinity(None).unwrap()).unwrap();
        assert_eq!(set.count(), 1);
        assert_eq!(
            rustix::thread::sched_getaffinity(None).unwrap().count(),
            mine.count(),
            "only the thread that was started"
        );
    }
}
