//! What the study of orchestration starts besides: explicit proxies that decrypt, as penstock and Squid are configured for it, the
//! services that inspect, and servers for every name.

use super::{
    catalogue::{Names, Way},
    configuration::{Service, thread_lines},
    contestant::{Contestant, Program, said},
    server::Helper,
};
use rustix::process::geteuid;
use std::{
    fmt::Write,
    net::SocketAddr,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

/// The contestant that passes bytes on without a look: what a bypass is compared with.
pub const PASSES_ON: &str = "penstock-tcp";

/// What an explicit proxy needs beside its address.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The authority that signs what is forged, with its key.
    pub authority: PathBuf,
    /// The authority that has signed the servers' certificates.
    pub roots: PathBuf,
    /// The services that inspect, where they run.
    pub icap: Option<SocketAddr>,
}

/// Whether this contestant can do what is asked of it.
#[must_use]
pub fn serves(contestant: &Contestant, way: Way) -> bool {
    let passes_on = contestant.name == PASSES_ON;
    match way {
        Way::Server => !passes_on && contestant.program != Program::Sslsplit,
        Way::Tunnel { services: 0, names: Names::New } if contestant.program == Program::Sslsplit => true,
        Way::Tunnel { .. } => !passes_on && matches!(contestant.program, Program::Penstock | Program::Squid),
        // No engine has anything to do.
        Way::Passed => passes_on || contestant.mode.as_deref() == Some("native"),
    }
}

/// The sections of penstock as an explicit proxy, or as one that passes bytes on.
#[must_use]
pub fn sections(service: &Service, contestant: &str) -> String {
    let (Some((_, origin)), Some(inspection)) = (service.origin, &service.inspection) else { return String::new() };
    let (listen, certificate, roots) = (service.listen, service.certificate.display(), inspection.roots.display());
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = match service.way {
        Way::Passed if contestant == PASSES_ON => write!(
            out,
            "frontend passed\n    mode tcp\n    bind {listen}\n    default_backend origin\nbackend origin\n    mode tcp\n    \
             server origin {origin}\n"
        ),
        Way::Passed => write!(
            out,
            "{}frontend tls\n    bind {listen} ssl crt {certificate} alpn http/1.1 no-tls-tickets\n    \
             tcp-request client-hello bypass passed if {{ req.ssl_sni localhost }}\n    http-request service-chain inspect\n    \
             default_backend origin\nbackend passed\n    mode tcp\n    server origin {origin}\nbackend origin\n    \
             server origin {origin} ssl verify required ca-file {roots} sni ssl_fc_sni\n",
            chain(1, inspection.icap.unwrap_or(origin))
        ),
        Way::Tunnel { services, .. } => {
            let inspected = inspection.icap.filter(|_| services > 0);
            let rule = inspected.map_or("", |_| "    http-request service-chain inspect if { ssl_fc }\n");
            write!(
                out,
                "{}frontend proxy\n    bind {listen} ssl-on-connect crt {certificate} alpn http/1.1 no-tls-tickets \
                 generate-certificates ca-sign-file {}\n    tcp-request client-hello intercept origin\n{rule}    \
                 default_backend origin\nbackend origin\n    \
                 server origin {origin} ssl verify required ca-file {roots} sni ssl_fc_sni alpn http/1.1\n",
                inspected.map_or(String::new(), |icap| chain(services, icap)),
                inspection.authority.display()
            )
        }
        Way::Server => Ok(()),
    };
    out
}

fn chain(services: usize, icap: SocketAddr) -> String {
    let mut out = String::new();
    for number in 1..=services {
        let _ = write!(
            out,
            "service echo{number}\n    mode icap\n    reqmod /echo\n    respmod /echo\n    max-body 4m\n    server icap {icap}\n"
        );
    }
    out.push_str("service-chain inspect\n");
    for number in 1..=services {
        let _ = writeln!(out, "    inspect echo{number}");
    }
    out
}

/// Squid's configuration: an explicit proxy with ssl-bump, or a server that ends TLS itself.
#[must_use]
pub fn squid(service: &Service, contestant: &Contestant, directory: &Path) -> String {
    let (workers, descriptors) = (service.cpus.len(), service.connections * 8 + 1000);
    let here = directory.display();
    let mut out = String::new();
    let _ = write!(
        out,
        "workers {workers}\nmax_filedescriptors {descriptors}\npid_filename {here}/squid.pid\ncache_log {here}/squid.log\n\
         coredump_dir {here}\naccess_log none\ncache_store_log none\ncache deny all\npinger_enable off\nshutdown_lifetime 0 seconds\n\
         visible_hostname localhost\nvia off\nforwarded_for transparent\nhttp_access allow all\nsslproxy_session_cache_size 0\n"
    );
    let Some((_, origin)) = service.origin else { return out };
    let Way::Tunnel { services, .. } = service.way else {
        let _ = write!(
            out,
            "https_port {} accel defaultsite=localhost no-vhost options=NO_TICKET tls-cert={}\n\
             cache_peer {} parent {} 0 no-query no-digest originserver name=origin\n",
            service.listen,
            service.certificate.display(),
            origin.ip(),
            origin.port()
        );
        return out;
    };
    let Some(inspection) = &service.inspection else { return out };
    let _ = write!(
        out,
        "http_port {} ssl-bump generate-host-certificates=on options=NO_TICKET tls-cert={}\n{}\n\
         acl hello at_step SslBump1\nssl_bump peek hello\nssl_bump bump all\ntls_outgoing_options cafile={}\n",
        service.listen,
        inspection.authority.display(),
        contestant.global.join("\n").replace("DIRECTORY", &here.to_string()),
        inspection.roots.display()
    );
    let Some(icap) = inspection.icap.filter(|_| services > 0) else { return out };
    out.push_str("icap_enable on\nicap_send_client_ip on\nicap_service_failure_limit -1\n");
    for (kind, point) in [("request", "reqmod_precache"), ("response", "respmod_precache")] {
        for number in 1..=services {
            let _ = writeln!(out, "icap_service {kind}{number} {point} icap://{icap}/echo bypass=off");
        }
        if services > 1 {
            let names: Vec<String> = (1..=services).map(|number| format!("{kind}{number}")).collect();
            let _ = writeln!(out, "adaptation_service_chain {kind}s {}", names.join(" "));
        }
        let set = if services > 1 { format!("{kind}s") } else { format!("{kind}1") };
        // A service is not asked about CONNECT: penstock's is not either.
        let _ = writeln!(out, "adaptation_access {set} deny CONNECT\nadaptation_access {set} allow all");
    }
    out
}

/// SSLsplit's configuration: it knows no tunnels, so that connections go to it instead of the server. Its forged certificates have the key
/// of the contestants' own.
#[must_use]
pub fn sslsplit(service: &Service) -> String {
    let (Some((_, origin)), Some(inspection)) = (service.origin, &service.inspection) else { return String::new() };
    let (listen, authority) = (service.listen, inspection.authority.display());
    // Without it, the user that it becomes could not read whom it is to trust.
    let user = if geteuid().is_root() { "User root\n" } else { "" };
    format!(
        "{user}CACert {authority}\nCAKey {authority}\nLeafKey {}\nVerifyPeer yes\nProxySpec ssl {} {} {} {}\n",
        service.certificate.display(),
        listen.ip(),
        listen.port(),
        origin.ip(),
        origin.port()
    )
}

/// The environment in which OpenSSL trusts those who have signed the servers' certificates: SSLsplit has no option for them.
#[must_use]
pub fn trusted(service: &Service) -> Option<(String, String)> {
    let roots = &service.inspection.as_ref()?.roots;
    Some(("SSL_CERT_FILE".into(), roots.display().to_string()))
}

/// Whether this is a Squid that can forge: its own word for the helper, and the line that starts it.
///
/// # Errors
/// It was built without OpenSSL.
pub fn helper_line(version: &str) -> Result<String, String> {
    if !version.contains("--enable-ssl-crtd") || !version.contains("--with-openssl") {
        return Err("this Squid has no ssl-bump: it was built without OpenSSL (Debian's squid-openssl has it)".into());
    }
    let folder = option(version, "--libexecdir=").unwrap_or("/usr/lib/squid");
    Ok(format!("sslcrtd_program {folder}/security_file_certgen -s DIRECTORY/forged -M 64MB"))
}

/// The value of an option that Squid was built with, as `squid -v` says.
fn option<'a>(version: &'a str, name: &str) -> Option<&'a str> {
    version.split(name).nth(1)?.split(['\'', ' ']).next()
}

/// Makes the files that Squid wants to find, and gives its folder to the user that it becomes if it is started by root.
///
/// # Errors
/// A sentence.
pub fn prepare_squid(contestant: &Contestant, directory: &Path) -> Result<(), String> {
    let forged = directory.join("forged");
    // Of an earlier case, with another authority.
    let _ = std::fs::remove_dir_all(&forged);
    let helper = contestant.global.iter().find_map(|line| line.strip_prefix("sslcrtd_program ")?.split(' ').next());
    let helper = helper.ok_or("Squid's helper is not known")?;
    let made = Command::new(helper).arg("-c").arg("-s").arg(&forged).args(["-M", "64MB"]).output();
    let made = made.map_err(|e| format!("{helper}: {e}"))?;
    if !made.status.success() {
        return Err(format!("{helper}: {}", String::from_utf8_lossy(&made.stderr).trim()));
    }
    if !geteuid().is_root() {
        return Ok(());
    }
    let text = said(&contestant.path, &["-v"]).unwrap_or_default();
    let name = option(&text, "--with-default-user=").unwrap_or("nobody");
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let (user, group) = account(&accounts, name).ok_or_else(|| format!("Squid's user '{name}' does not exist"))?;
    let cannot = |e: std::io::Error| format!("{}: {e}", directory.display());
    // The study's own folder, through which it goes.
    if let Some(parent) = directory.parent() {
        std::fs::set_permissions(parent, PermissionsExt::from_mode(0o711)).map_err(cannot)?;
    }
    give(directory, user, group).map_err(cannot)
}

/// The numbers of a user and of its group.
fn account(accounts: &str, name: &str) -> Option<(u32, u32)> {
    let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn give(path: &Path, user: u32, group: u32) -> std::io::Result<()> {
    chown(path, Some(user), Some(group))?;
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            give(&entry?.path(), user, group)?;
        }
    }
    Ok(())
}

/// c-icap with the service that lets everything pass.
///
/// # Errors
/// It is not there as a whole.
pub fn services<'a>(
    program: &'a Path,
    listen: SocketAddr,
    connections: usize,
    directory: &Path,
) -> Result<Helper<'a>, String> {
    let modules = modules().ok_or("c-icap has no srv_echo.so")?;
    let (here, modules) = (directory.display(), modules.display());
    // A thread serves a connection for as long as it is kept, and each proxy keeps as many as it has had use for.
    let threads = (connections * 8).clamp(64, 4000);
    Ok(Helper {
        name: "services",
        program,
        before: &["-N", "-f"],
        text: format!(
            "PidFile {here}/c-icap.pid\nCommandsSocket {here}/c-icap.ctl\nStartServers 1\nMaxServers 1\nMinSpareThreads 1\n\
             MaxSpareThreads {threads}\nThreadsPerChild {threads}\nMaxRequestsPerChild 0\nMaxKeepAliveRequests -1\nKeepAliveTimeout 600\n\
             Port {listen}\nTmpDir {here}\nMaxMemObject 4194304\nDebugLevel 0\nModulesDir {modules}\nServicesDir {modules}\n\
             TemplateDir {here}\nTemplateDefaultLanguage en\nLoadMagicFile /etc/c-icap/c-icap.magic\nServerLog {here}/c-icap.log\n\
             Service echo srv_echo.so\n"
        ),
    })
}

/// The folder of c-icap's modules, which its packages have in other places.
fn modules() -> Option<PathBuf> {
    let beside = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let all = beside.chain(["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from));
    all.map(|folder| folder.join("c_icap")).find(|folder| folder.join("srv_echo.so").is_file())
}

/// A server that has a certificate for every name, which is made when it is asked for: penstock, before the backend server in clear text.
#[must_use]
pub fn for_every_name<'a>(
    penstock: &'a Path,
    listen: SocketAddr,
    certificate: &Path,
    authority: &Path,
    files: SocketAddr,
    cpus: &[u32],
) -> Helper<'a> {
    Helper {
        name: "names",
        program: penstock,
        before: &["-db", "-f"],
        text: format!(
            "global\n{}    tune.ssl.cachesize 0\ndefaults\n    mode http\n    timeout connect 10s\n    timeout client 60s\n    \
             timeout server 60s\n    backlog 16384\nfrontend names\n    bind {listen} ssl crt {} alpn http/1.1 no-tls-tickets \
             generate-certificates ca-sign-file {}\n    default_backend files\nbackend files\n    server origin {files}\n",
            thread_lines(cpus),
            certificate.display(),
            authority.display()
        ),
    }
}

impl Way {
    /// The name that clients ask for.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Way::Tunnel { names: Names::New, .. } => "{n}.example",
            _ => "localhost",
        }
    }

    /// How many services are asked about each message.
    #[must_use]
    pub fn services(self) -> usize {
        match self {
            Way::Tunnel { services, .. } => services,
            Way::Server | Way::Passed => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::catalogue::Origin;

    fn service(way: Way) -> Service {
        Service {
            listen: "127.0.0.1:3128".parse().unwrap(),
            certificate: "/lab/rsa2048.pem".into(),
            cpus: vec![2],
            connections: 64,
            origin: Some((Origin::Encrypted, "127.0.0.1:8180".parse().unwrap())),
            keep_alive: false,
            way,
            inspection: Some(Inspection {
                authority: "/lab/authority.pem".into(),
                roots: "/lab/origins.crt".into(),
                icap: Some("127.0.0.1:1344".parse().unwrap()),
            }),
        }
    }

    fn contestant(name: &str, program: Program) -> Contestant {
        Contestant {
            name: name.into(),
            doc: String::new(),
            program,
            path: "/bin/true".into(),
            version: Vec::new(),
            mode: name.strip_prefix("penstock-").filter(|mode| *mode != "tcp").map(str::to_owned),
            global: vec!["sslcrtd_program /usr/lib/squid/it -s DIRECTORY/forged -M 64MB".into()],
            environment: Vec::new(),
            double: false,
            configuration: String::new(),
        }
    }

    #[test]
    fn both_are_asked_for_the_same_calls() {
        let squid_of = |services| {
            let way = Way::Tunnel { services, names: Names::One };
            squid(&service(way), &contestant("squid", Program::Squid), Path::new("/lab/squid"))
        };
        let penstock_of = |services| sections(&service(Way::Tunnel { services, names: Names::One }), "penstock-sw");
        for services in [0, 1, 3] {
            let (squid, penstock) = (squid_of(services), penstock_of(services));
            assert_eq!(squid.matches("icap_service request").count(), services, "{squid}");
            assert_eq!(squid.matches("icap_service response").count(), services, "{squid}");
            assert_eq!(penstock.matches("    inspect echo").count(), services, "{penstock}");
            assert_eq!(
                penstock.contains("http-request service-chain inspect if { ssl_fc }"),
                services > 0,
                "{penstock}"
            );
            assert_eq!(squid.contains("icap_enable on"), services > 0, "{squid}");
            assert!(squid.contains("-s /lab/squid/forged") && squid.contains("cafile=/lab/origins.crt"), "{squid}");
        }
        assert!(squid_of(3).contains("adaptation_service_chain requests request1 request2 request3\n"));
        assert!(squid_of(1).contains("adaptation_access request1 deny CONNECT\n"));
    }

    #[test]
    fn only_one_passes_bytes_on_without_a_look() {
        let looks = sections(&service(Way::Passed), "penstock-native");
        assert!(looks.contains("tcp-request client-hello bypass passed if { req.ssl_sni localhost }"), "{looks}");
        let passes = sections(&service(Way::Passed), PASSES_ON);
        assert!(passes.contains("mode tcp\n    bind 127.0.0.1:3128\n") && !passes.contains("ssl"), "{passes}");
        let (tcp, native) =
            (contestant(PASSES_ON, Program::Penstock), contestant("penstock-native", Program::Penstock));
        let ways = [Way::Server, Way::Tunnel { services: 1, names: Names::New }, Way::Passed];
        assert_eq!(ways.map(|way| serves(&tcp, way)), [false, false, true]);
        assert_eq!(ways.map(|way| serves(&native, way)), [true, true, true]);
        assert_eq!(ways.map(|way| serves(&contestant("nginx", Program::Nginx), way)), [true, false, false]);
        assert_eq!(ways.map(|way| serves(&contestant("squid", Program::Squid), way)), [true, true, false]);
        assert_eq!(ways.map(|way| serves(&contestant("sslsplit", Program::Sslsplit), way)), [false; 3]);
    }

    #[test]
    fn sslsplit_forges_with_the_same_authority_and_validates_the_servers() {
        let service = service(Way::Tunnel { services: 0, names: Names::New });
        assert!(serves(&contestant("sslsplit", Program::Sslsplit), service.way));
        let text = sslsplit(&service);
        assert!(text.contains("CAKey /lab/authority.pem\nLeafKey /lab/rsa2048.pem\nVerifyPeer yes\n"), "{text}");
        assert!(text.ends_with("ProxySpec ssl 127.0.0.1 3128 127.0.0.1 8180\n"), "{text}");
        assert_eq!(trusted(&service), Some(("SSL_CERT_FILE".into(), "/lab/origins.crt".into())));
    }

    #[test]
    fn a_squid_says_itself_whether_it_can_forge() {
        let debian = "configure options: '--libexecdir=/opt/squid' '--with-default-user=proxy' '--with-openssl' '--enable-ssl-crtd'";
        assert_eq!(
            helper_line(debian).unwrap(),
            "sslcrtd_program /opt/squid/security_file_certgen -s DIRECTORY/forged -M 64MB"
        );
        assert_eq!(option(debian, "--with-default-user="), Some("proxy"));
        assert!(helper_line("'--with-gnutls'").unwrap_err().contains("squid-openssl"));
        let accounts = "root:x:0:0:root:/root:/bin/sh\nproxy:x:13:14:proxy:/bin:/usr/sbin/nologin\n";
        assert_eq!(account(accounts, "proxy"), Some((13, 14)));
        assert_eq!(account(accounts, "prox"), None);
    }
}
