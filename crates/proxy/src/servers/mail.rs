//! Email alerts (manual section 3.6): what happens to servers is mailed, where `email-alert` says so.

use crate::worker::{pulse::Who, state::Worker, task};
use penstock_backends::{
    mail::{Conversation, Mail, Next},
    server::Notice,
};
use penstock_config::model::{EmailAlert, Mailers, ProxyId, ServerHost};
use penstock_config::syslog;
use std::{collections::HashMap, net::SocketAddr, rc::Rc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc::{Receiver, Sender, channel},
    time::timeout,
};

/// Mails that wait for one mail server. While it cannot be reached, later ones are lost, as the log says.
const WAITING_MAX: usize = 100;

/// The mail servers in use, by the names of their sections.
pub(crate) struct Mailing {
    worker: Rc<Worker>,
    sections: HashMap<String, Vec<Mailer>>,
}

/// A mail server.
struct Mailer {
    /// Its section's name and its own.
    name: String,
    /// What it is still to be given, each for a proxy.
    queue: Sender<(ProxyId, Mail)>,
}

impl Mailing {
    /// Starts a task for each mail server that some proxy uses.
    pub fn start(worker: &Rc<Worker>) -> Mailing {
        let config = &worker.shared.config;
        let alerts = config.proxies.iter().filter_map(|proxy| proxy.email_alert.as_ref());
        let used: Vec<&str> = alerts.filter_map(|alert| Some(alert.mailers.as_ref()?.text.as_str())).collect();
        let sections = config.mailers.iter().filter(|section| used.contains(&section.name.as_str()));
        let sections = sections.map(|section| (section.name.clone(), start_section(worker, section))).collect();
        Mailing { worker: worker.clone(), sections }
    }

    /// Mails a notice if its proxy wants it.
    pub fn tell(&self, notice: &Notice) {
        let shared = &self.worker.shared;
        let Some(alert) = &shared.config.proxies[notice.proxy].email_alert else { return };
        let EmailAlert { mailers: Some(section), from: Some(from), to: Some(to), level, host, .. } = &**alert else {
            return;
        };
        if notice.mailed.is_none_or(|severity| severity > *level) {
            return;
        }
        let now = (self.worker.clock.unix_us() / 1_000_000) as i64;
        let mut date = Vec::new();
        penstock_rules::time::format(now, penstock_sys::local_offset(now), b"%a, %d %b %Y %H:%M:%S %z (%Z)", &mut date);
        let mail = Mail {
            host: host.clone().unwrap_or_else(|| shared.hostname.clone()),
            from: from.clone(),
            to: to.clone(),
            date: String::from_utf8_lossy(&date).into_owned(),
            text: notice.text.strip_suffix('.').unwrap_or(&notice.text).to_owned(),
        };
        for mailer in self.sections.get(&section.text).into_iter().flatten() {
            if mailer.queue.try_send((notice.proxy, mail.clone())).is_err() {
                failed(&self.worker, notice.proxy, &mailer.name, &format!("{WAITING_MAX} others wait for it"));
            }
        }
    }
}

fn start_section(worker: &Rc<Worker>, section: &Mailers) -> Vec<Mailer> {
    let mut mailers = Vec::new();
    for mailer in &section.mailers {
        // Names have been resolved at the start.
        let (ServerHost::Ip(ip), port) = mailer.address else { continue };
        let (queue, mails) = channel(WAITING_MAX);
        let name = format!("{}/{}", section.name, mailer.name);
        let to = SocketAddr::new(ip, port);
        task::spawn(worker, Who::Worker, deliver(worker.clone(), name.clone(), to, section.timeout, mails));
        mailers.push(Mailer { name, queue });
    }
    mailers
}

/// Delivers one mail after the other to a mail server.
async fn deliver(
    worker: Rc<Worker>,
    mailer: String,
    to: SocketAddr,
    limit: Duration,
    mut mails: Receiver<(ProxyId, Mail)>,
) {
    while let Some((proxy, mail)) = mails.recv().await {
        let delivered = timeout(limit, converse(to, &mail)).await;
        if let Err(why) = delivered.unwrap_or_else(|_| Err("it took longer than 'timeout mail'".to_owned())) {
            failed(&worker, proxy, &mailer, &why);
        }
    }
}

async fn converse(to: SocketAddr, mail: &Mail) -> Result<(), String> {
    let words = |error: std::io::Error| super::checks::words(&error);
    let mut socket = TcpStream::connect(to).await.map_err(words)?;
    let mut conversation = Conversation::new(mail);
    let mut buffer = [0; 1024];
    loop {
        let n = socket.read(&mut buffer).await.unwrap_or(0);
        match conversation.receive(&buffer[..n])? {
            Next::Receive => {}
            Next::Send(bytes) => socket.write_all(&bytes).await.map_err(words)?,
            Next::Delivered => return Ok(()),
        }
    }
}

fn failed(worker: &Worker, proxy: ProxyId, mailer: &str, why: &str) {
    let text = format!("mailer {mailer} did not get an email alert: {why}.");
    worker.logger.send(proxy, worker.clock.unix_us(), syslog::WARNING, b"", text.as_bytes());
}
