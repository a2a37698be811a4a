//! The states of servers that another process has left in a file: what `show servers state` writes, and `server-state-file` names. They
//! are read here as text, and given to the servers of the same names.

use super::{Admin, AgentPlace, Backends, Cause, Endpoint, Operational, ServerRef};
use penstock_config::model::ServerPort;
use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// A server as such a file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedServer {
    /// The backend's name.
    pub backend: String,
    /// The server's name.
    pub name: String,
    /// The address it had.
    pub address: Option<IpAddr>,
    /// The server's state according to checks.
    pub state: Operational,
    /// HAProxy's administrative flags.
    flags: u32,
    /// The server's weight when the file was written.
    weight: u32,
    /// The server's weight in the configuration of the process that wrote the file.
    configured_weight: u32,
    /// How long the server had been in its state.
    age: Duration,
    /// Whether the server's check was configured, but switched off.
    check_is_off: bool,
    /// The server's port.
    port: Option<u16>,
    /// The port of its checks, if it differs from the server's.
    check_port: Option<u16>,
    /// The address of its checks, where that is another.
    check_address: Option<IpAddr>,
    /// Whether the server's agent was configured, but switched off.
    agent_is_off: bool,
    /// The address of its agent, where that is another.
    agent_address: Option<IpAddr>,
    /// The port of its agent.
    agent_port: Option<u16>,
}

/// Why a file of states is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedError {
    /// The file does not begin with the version of the format.
    Version,
    /// The line with this number is not in the format.
    Line(usize),
    /// It ends before its servers begin.
    Cut,
}

/// A server in a file of states that has a value which it cannot have, or whose line is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableServer {
    /// The number of its line.
    pub line: usize,
    /// The backend's name.
    pub backend: String,
    /// The server's name.
    pub name: String,
    /// The value's name; `None` if the file ends within the line.
    pub what: Option<&'static str>,
}

/// The version of the format.
const VERSION: &str = "1";

/// How many fields a line must have: up to the port.
const FIELDS: usize = 19;

/// How many fields are written.
const ALL_FIELDS: usize = 25;

/// How many lines come before the first server: the version, and the names of the fields.
const HEAD: usize = 2;

/// HAProxy's administrative flags.
const FORCED_MAINT: u32 = 1;
const CONFIGURED_MAINT: u32 = 4;
const FORCED_DRAIN: u32 = 8;

/// HAProxy's flags of a check.
const CHECK_CONFIGURED: u32 = 2;
const CHECK_ENABLED: u32 = 4;

/// What logs say of a server whose state came from a file.
const CAUSE: &str = "changed from server-state after a reload";

/// Reads a file of states. As in HAProxy, a file that is not in the format is used in no part, a server with a wrong value is left out, and a
/// wrong address is as none. A disk that was full leaves a file that is cut anywhere: what may have lost a part of it is not used.
///
/// # Errors
/// If it is no such file.
pub fn read_saved(text: &str) -> Result<Vec<Result<SavedServer, UnusableServer>>, SavedError> {
    let mut lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    if lines.next().is_none_or(|(_, version)| version != VERSION) {
        return Err(SavedError::Version);
    }
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let ends = text.matches('\n').count();
    let server_of = |(line, text): (usize, &str)| {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let word = |place: usize| fields.get(place).copied().unwrap_or_default().to_string();
        let unusable = |what| UnusableServer { line, backend: word(1), name: word(3), what };
        // By hand, one may write a last line without an end, but not leave out half of its fields.
        if line > ends && fields.len() < ALL_FIELDS {
            return Ok(Err(unusable(None)));
        }
        if fields.len() < FIELDS {
            return Err(SavedError::Line(line));
        }
        Ok(server(&fields).map_err(|what| unusable(Some(what))))
    };
    let servers = lines.map(server_of).collect::<Result<Vec<_>, _>>()?;
    if servers.is_empty() && ends < HEAD { Err(SavedError::Cut) } else { Ok(servers) }
}

/// # Errors
/// The name of a value that a server cannot have.
fn server(fields: &[&str]) -> Result<SavedServer, &'static str> {
    let number = |place: usize, what| match fields.get(place) {
        Some(field) => field.parse::<u32>().map_err(|_| what),
        None => Ok(0),
    };
    let at_most =
        |limit, place, what| number(place, what).and_then(|found| (found <= limit).then_some(found).ok_or(what));
    // A unix socket is in no field but by its path, which the configuration knows.
    let address = |place: usize| fields.get(place).and_then(|field| field.parse().ok());
    let port = |place: usize, what| number(place, what).and_then(|port| u16::try_from(port).map_err(|_| what));
    let (check, agent) = (number(13, "srv_check_state")?, number(14, "srv_agent_state")?);
    let is_off = |flags: u32| flags & CHECK_CONFIGURED != 0 && flags & CHECK_ENABLED == 0;
    // A port that follows the client's has a sign.
    let own_port = if fields[18].starts_with(['+', '-']) { 0 } else { port(18, "srv_port")? };
    let some = |port: u16| Some(port).filter(|port| *port != 0);
    Ok(SavedServer {
        backend: fields[1].to_string(),
        name: fields[3].to_string(),
        address: address(4),
        state: match number(5, "srv_op_state")? {
            0 => Operational::Stopped,
            1 => Operational::Starting,
            2 => Operational::Running,
            3 => Operational::Stopping,
            _ => return Err("srv_op_state"),
        },
        flags: at_most(255, 6, "srv_admin_state")?,
        weight: at_most(256, 7, "srv_uweight")?,
        configured_weight: at_most(256, 8, "srv_iweight")?,
        age: Duration::from_secs(fields[9].parse().map_err(|_| "srv_time_since_last_change")?),
        check_is_off: is_off(check),
        agent_is_off: is_off(agent),
        port: some(own_port),
        check_port: some(port(21, "srv_check_port")?),
        check_address: address(22),
        agent_address: address(23),
        agent_port: some(port(24, "srv_agent_port")?),
    })
}

impl<E> Backends<E> {
    /// Gives a server the state that it had, as far as the configuration still says the same: what was changed there counts more
    /// than what was changed while another process ran.
    pub fn restore(&self, at: ServerRef, saved: &SavedServer, now: Instant) {
        let Some(server) = self.server(at) else { return };
        let (settings, since) = (&server.config.settings, self.since(now));
        let cause = Cause { note: CAUSE, ..Cause::default() };
        match saved.state {
            Operational::Stopped => {
                self.set_health(at, |_| 0);
                self.set_stopped(at, &cause, now);
            }
            Operational::Stopping => {
                self.set_health(at, |check| check.rise);
                self.set_stopping(at, &cause, now);
            }
            // A slow start is not gone on with: the server has been up.
            Operational::Starting | Operational::Running => self.set_health(at, |check| check.rise + check.fall - 1),
        }
        let had = |flag: u32| saved.flags & flag != 0;
        if had(CONFIGURED_MAINT) == settings.disabled && had(FORCED_MAINT) != settings.disabled {
            self.set_admin(at, Admin::FORCED_MAINT, had(FORCED_MAINT), since);
        }
        // Where the weight was 0 by configuration, that was the reason for it.
        if had(FORCED_DRAIN) && (saved.configured_weight > 0 || settings.weight == 0) {
            self.set_admin(at, Admin::FORCED_DRAIN, true, since);
        }
        if saved.configured_weight == settings.weight {
            self.set_weight(at, saved.weight, now);
        }
        if saved.check_is_off {
            self.set_checked(at, false);
        }
        if let (Some(port), ServerPort::Fixed(_)) = (saved.port, server.endpoint.load().port) {
            let host = server.endpoint.load().host.clone();
            self.set_endpoint(at, Endpoint { host, port: ServerPort::Fixed(port) });
        }
        if settings.check.enabled
            && !saved.check_is_off
            && (saved.check_port.is_some() || saved.check_address.is_some())
        {
            let mut place = **server.check_place.load();
            place.port = saved.check_port.or(place.port);
            place.addr = saved.check_address.or(place.addr);
            server.check_place.store(Arc::new(place));
        }
        if saved.agent_is_off {
            self.set_asked(at, false);
        }
        if settings.agent.is_some() && !saved.agent_is_off {
            let mut place = AgentPlace::clone(&server.agent_place.load());
            place.addr = saved.agent_address.or(place.addr);
            place.port = saved.agent_port.unwrap_or(place.port);
            server.agent_place.store(Arc::new(place));
        }
        if let Some((_, mut core)) = self.lock(at) {
            let status = &mut core.status[at.server.index()];
            (status.last_change, status.age_at_start) = (Duration::ZERO, saved.age);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "2 a 1 s1 127.0.0.9 2 8 3 10 71 6 3 4 2 0 0 0 - 99 - 0 77 192.0.2.1 - 0";

    #[test]
    fn a_file_is_read_as_haproxy_writes_it() {
        let saved = read_saved(&format!("1\n# be_id be_name\n{LINE}\n\n")).unwrap();
        assert_eq!(
            saved,
            [Ok(SavedServer {
                backend: "a".into(),
                name: "s1".into(),
                address: Some("127.0.0.9".parse().unwrap()),
                state: Operational::Running,
                flags: 8,
                weight: 3,
                configured_weight: 10,
                age: Duration::from_secs(71),
                check_is_off: true,
                port: Some(99),
                check_port: Some(77),
                check_address: Some("192.0.2.1".parse().unwrap()),
                agent_is_off: false,
                agent_address: None,
                agent_port: None,
            })]
        );
    }

    #[test]
    fn an_agent_keeps_its_place_and_whether_it_is_asked() {
        let of = |state: u32| {
            let line = LINE.replace(" 2 0 0 0 - 99", &format!(" 2 {state} 0 0 - 99"));
            let line = line.replace("192.0.2.1 - 0", "192.0.2.1 192.0.2.7 88");
            let saved = read_saved(&format!("1\n{line}\n")).unwrap().remove(0).unwrap();
            (saved.agent_is_off, saved.agent_address, saved.agent_port)
        };
        let place = (Some("192.0.2.7".parse().unwrap()), Some(88));
        assert_eq!(of(18), (true, place.0, place.1));
        assert_eq!(of(22), (false, place.0, place.1));
    }

    #[test]
    fn what_is_no_such_file_is_used_in_no_part() {
        for (text, wanted) in [
            ("", SavedError::Version),
            ("2\n", SavedError::Version),
            ("garbage", SavedError::Version),
            ("1\n#\n2 a 1 s1 127.0.0.1\n", SavedError::Line(3)),
            ("1", SavedError::Cut),
            ("1\n", SavedError::Cut),
            ("1\n# be_id be_na", SavedError::Cut),
        ] {
            assert_eq!(read_saved(text), Err(wanted), "{text}");
        }
    }

    #[test]
    fn a_wrong_value_concerns_its_server_alone() {
        let with = |field: usize, value: &str| {
            let mut fields: Vec<&str> = LINE.split(' ').collect();
            fields[field] = value;
            let text = format!("1\n{LINE}\n{}\n", fields.join(" "));
            let mut found = read_saved(&text).unwrap();
            assert!(found.remove(0).is_ok(), "{text}");
            found.remove(0)
        };
        for (field, wrong, what) in [
            (5, "4", "srv_op_state"),
            (6, "300", "srv_admin_state"),
            (7, "257", "srv_uweight"),
            (8, "-1", "srv_iweight"),
            (9, "x", "srv_time_since_last_change"),
            (13, "x", "srv_check_state"),
            (18, "99999", "srv_port"),
        ] {
            let expected = UnusableServer { line: 3, backend: "a".into(), name: "s1".into(), what: Some(what) };
            assert_eq!(with(field, wrong), Err(expected));
        }
        assert_eq!(with(4, "not.an.address").unwrap().address, None);
    }

    #[test]
    fn a_file_that_is_cut_loses_no_more_than_its_last_server() {
        let second = LINE.replace("s1", "s2").replace("- 99", "- 8080");
        let (head, whole) = ("1\n# be_id be_name\n", format!("1\n# be_id be_name\n{LINE}\n{second}\n"));
        assert_eq!(read_saved(head), Ok(Vec::new()), "there were no servers");
        let begin = head.len() + LINE.len() + 1;
        for end in begin + 1..whole.len() {
            let found = read_saved(&whole[..end]).unwrap();
            assert!(found[0].is_ok(), "{end}");
            let is_whole = whole[begin..end].split_whitespace().count() == ALL_FIELDS;
            assert_eq!(found[1].is_ok(), is_whole, "{}", &whole[begin..end]);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_fail_otherwise(text in "1\n([0-9a-z.-]{0,4} ){0,30}.*") {
            let _ = read_saved(&text);
        }
    }
}
