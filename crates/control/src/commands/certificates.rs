//! Commands about certificates and the other files of TLS.

use crate::{Args, Level, Refusal, table::Entry};

/// A command about certificates, crt-lists, authorities, OCSP responses or ticket keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// Lists the files of a kind.
    List {
        /// The kind.
        kind: TlsFile,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows a file.
    Show {
        /// The file's kind.
        kind: TlsFile,
        /// The file's name.
        file: String,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Changes a file.
    Change {
        /// The file's kind.
        kind: TlsFile,
        /// The file's name.
        file: String,
        /// The change.
        verb: Verb,
    },
    /// Shows a certificate with its key, in PEM.
    Dump(String),
    /// Lists the crt-lists.
    Lists {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows the lines of a crt-list.
    ShowList {
        /// The crt-list's name.
        list: String,
        /// With line numbers.
        numbered: bool,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Adds a line to a crt-list.
    AddLine {
        /// The crt-list's name.
        list: String,
        /// A certificate, with optional settings and filters.
        line: String,
    },
    /// Removes a line from a crt-list.
    RemoveLine {
        /// The crt-list's name.
        list: String,
        /// The certificate's name.
        certificate: String,
        /// The line's number, if the certificate is in the list several times.
        line: Option<usize>,
    },
    /// Shows the names that frontends have certificates for.
    Names {
        /// Only those of this frontend.
        frontend: Option<String>,
        /// Only those of expired certificates.
        expired: bool,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows the crypto library.
    Providers {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Lists the OCSP responses.
    Responses {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows an OCSP response.
    Response {
        /// The response's name, or that of a certificate.
        which: String,
        /// In base64 instead of text.
        base64: bool,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Staples a response (in base64) to the certificates it is about.
    SetResponse(String),
    /// Shows when responses are fetched automatically.
    Updates {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Fetches the response for a certificate from its responder.
    UpdateResponse(String),
    /// Lists the files of ticket keys; for one file or all (`*`), also the keys.
    TicketKeys {
        /// A file, `#` and its number, or `*`.
        which: Option<String>,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Adds a ticket key.
    AddTicketKey {
        /// A file, or `#` and its number.
        which: String,
        /// The key, in base64.
        key: String,
    },
}

/// The kinds of files that transactions change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// A certificate with its key.
    Certificate,
    /// Certificates of authorities.
    Ca,
    /// Revocation lists.
    Crl,
}

/// A change to a file.
#[derive(Clone, PartialEq, Eq)]
pub enum Verb {
    /// Creates it, empty.
    New,
    /// Replaces its content in a transaction.
    Set(String),
    /// Adds to its content in a transaction.
    Add(String),
    /// Applies the transaction.
    Commit,
    /// Drops the transaction.
    Abort,
    /// Deletes it.
    Delete,
}

impl std::fmt::Debug for Verb {
    /// Omits the payload, which may contain a private key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verb::New => "New",
            Verb::Set(_) => "Set(..)",
            Verb::Add(_) => "Add(..)",
            Verb::Commit => "Commit",
            Verb::Abort => "Abort",
            Verb::Delete => "Delete",
        })
    }
}

/// Takes the last word if it is `json`. A file of that name can be given as `./json`.
fn json(args: &mut Args) -> bool {
    args.take("json")
}

fn list(kind: TlsFile, args: &mut Args) -> Result<Certificates, Refusal> {
    Ok(match (json(args), args.word()) {
        (false, Some(file)) => Certificates::Show { kind, file, json: json(args) },
        (json, _) => Certificates::List { kind, json },
    })
}

fn change(kind: TlsFile, args: &mut Args, missing: &str, verb: Verb) -> Result<Certificates, Refusal> {
    Ok(Certificates::Change { kind, file: args.require(missing)?, verb })
}

/// Text that is not UTF-8 is not PEM either.
fn text(payload: Vec<u8>) -> String {
    String::from_utf8_lossy(&payload).into_owned()
}

fn set(kind: TlsFile, args: &mut Args, missing: &str, verb: fn(String) -> Verb) -> Result<Certificates, Refusal> {
    let file = args.require(missing)?;
    let content = args.payload().ok_or_else(|| Refusal::new(missing))?;
    Ok(Certificates::Change { kind, file, verb: verb(text(content)) })
}

fn add_line(args: &mut Args) -> Result<Certificates, Refusal> {
    const MISSING: &str = "'add ssl crtlist' expects a filename and a certificate name";
    let list = args.require(MISSING)?;
    let line = match args.payload() {
        Some(payload) => text(payload),
        None if args.is_empty() => return Err(Refusal::new(MISSING)),
        None => args.rest().join(" "),
    };
    let mut lines = line.lines();
    match (lines.next(), lines.next()) {
        (Some(line), None) => Ok(Certificates::AddLine { list, line: line.trim_end_matches('\r').to_owned() }),
        (None, _) => Err(Refusal::new(MISSING)),
        _ => Err(Refusal::new("Can't edit the crt-list: only one line of payload is supported!")),
    }
}

fn remove_line(args: &mut Args) -> Result<Certificates, Refusal> {
    const MISSING: &str = "'del ssl crtlist' expects a filename and a certificate name";
    let (list, name) = (args.require(MISSING)?, args.require(MISSING)?);
    let (certificate, line) = match name.rsplit_once(':') {
        Some((certificate, digits)) => {
            let wrong = || Refusal::new(format!("Can't delete the entry: wrong line number after colons in '{name}'!"));
            (certificate.to_owned(), Some(digits.parse().map_err(|_| wrong())?))
        }
        None => (name, None),
    };
    Ok(Certificates::RemoveLine { list, certificate, line })
}

fn show_list(args: &mut Args) -> Result<Certificates, Refusal> {
    let numbered = args.take("-n");
    Ok(match (json(args), args.word()) {
        (false, Some(list)) => Certificates::ShowList { list, numbered, json: json(args) },
        (_, None) if numbered => {
            return Err(Refusal::new("'show ssl crt-list -n' expects a filename or a directory"));
        }
        (json, _) => Certificates::Lists { json },
    })
}

fn names(args: &mut Args) -> Result<Certificates, Refusal> {
    let (mut frontend, mut expired, mut json) = (None, false, false);
    while let Some(word) = args.word() {
        match word.as_str() {
            "-f" => frontend = Some(args.require("'-f' expects a frontend's name")?),
            "-A" => expired = true,
            "json" => json = true,
            other => return Err(Refusal::new(format!("Invalid option '{other}'"))),
        }
    }
    Ok(Certificates::Names { frontend, expired, json })
}

fn responses(args: &mut Args) -> Result<Certificates, Refusal> {
    let base64 = args.take("base64");
    let _ = args.take("text");
    Ok(match (json(args), args.word()) {
        (false, Some(which)) => Certificates::Response { which, base64, json: json(args) },
        (json, _) => Certificates::Responses { json },
    })
}

fn add_ticket_key(args: &mut Args) -> Result<Certificates, Refusal> {
    const MISSING: &str = "'set ssl tls-key' expects a filename and the new TLS key in base64 encoding.";
    Ok(Certificates::AddTicketKey { which: args.require(MISSING)?, key: args.require(MISSING)? })
}

/// An entry for administrators that changes something of TLS.
const fn changing(
    words: &'static str,
    usage: &'static str,
    help: &'static str,
    what: &'static str,
    parse: fn(&mut Args) -> Result<Certificates, Refusal>,
) -> Entry<Certificates> {
    Entry::new(words, usage, help, parse).level(Level::Admin).changes(what).tells(1)
}

pub(crate) const ENTRIES: &[Entry<Certificates>] = &[
    changing(
        "abort ssl ca-file",
        "abort ssl ca-file <cafile>",
        "abort a transaction for a CA file",
        "a CA file's transaction",
        |args| change(TlsFile::Ca, args, "'abort ssl ca-file' expects a filename", Verb::Abort),
    ),
    changing(
        "abort ssl cert",
        "abort ssl cert <certfile>",
        "abort a transaction for a certificate file",
        "a certificate's transaction",
        |args| change(TlsFile::Certificate, args, "'abort ssl cert' expects a filename", Verb::Abort),
    ),
    changing(
        "abort ssl crl-file",
        "abort ssl crl-file <crlfile>",
        "abort a transaction for a CRL file",
        "a CRL file's transaction",
        |args| change(TlsFile::Crl, args, "'abort ssl crl-file' expects a filename", Verb::Abort),
    ),
    changing(
        "add ssl ca-file",
        "add ssl ca-file <cafile> <payload>",
        "add a certificate into the CA file",
        "a CA file's transaction",
        |args| set(TlsFile::Ca, args, "'add ssl ca-file' expects a filename and CAs as a payload", Verb::Add),
    ),
    changing(
        "add ssl crt-list",
        "add ssl crt-list <list> <cert> [opts]*",
        "add to crt-list file <list> a line <cert> or a payload",
        "a crt-list",
        add_line,
    )
    .tells(usize::MAX),
    changing("commit ssl ca-file", "commit ssl ca-file <cafile>", "commit a CA file", "a CA file", |args| {
        change(TlsFile::Ca, args, "'commit ssl ca-file' expects a filename", Verb::Commit)
    }),
    changing("commit ssl cert", "commit ssl cert <certfile>", "commit a certificate file", "a certificate", |args| {
        change(TlsFile::Certificate, args, "'commit ssl cert' expects a filename", Verb::Commit)
    }),
    changing("commit ssl crl-file", "commit ssl crl-file <crlfile>", "commit a CRL file", "a CRL file", |args| {
        change(TlsFile::Crl, args, "'commit ssl ca-file' expects a filename", Verb::Commit)
    }),
    changing("del ssl ca-file", "del ssl ca-file <cafile>", "delete an unused CA file", "a CA file", |args| {
        change(TlsFile::Ca, args, "'del ssl ca-file' expects a CA file name", Verb::Delete)
    }),
    changing("del ssl cert", "del ssl cert <certfile>", "delete an unused certificate file", "a certificate", |args| {
        change(TlsFile::Certificate, args, "'del ssl cert' expects a certificate name", Verb::Delete)
    }),
    changing("del ssl crl-file", "del ssl crl-file <crlfile>", "delete an unused CRL file", "a CRL file", |args| {
        change(TlsFile::Crl, args, "'del ssl crl-file' expects a CRL file name", Verb::Delete)
    }),
    changing(
        "del ssl crt-list",
        "del ssl crt-list <list> <cert[:line]>",
        "delete a line <cert> from crt-list file <list>",
        "a crt-list",
        remove_line,
    )
    .tells(usize::MAX),
    Entry::new("dump ssl cert", "dump ssl cert <certfile>", "dump a certificate with its key in PEM format", |args| {
        let name = args.require("'dump ssl cert' expects a certificate name")?;
        Ok(Certificates::Dump(name))
    })
    .level(Level::Admin),
    changing(
        "new ssl ca-file",
        "new ssl ca-file <cafile>",
        "create a new CA file to be used in a crt-list",
        "a CA file",
        |args| change(TlsFile::Ca, args, "'new ssl ca-file' expects a filename", Verb::New),
    ),
    changing(
        "new ssl cert",
        "new ssl cert <certfile>",
        "create a new certificate file to be used in a crt-list or a directory",
        "a certificate",
        |args| change(TlsFile::Certificate, args, "'new ssl cert' expects a filename", Verb::New),
    ),
    changing(
        "new ssl crl-file",
        "new ssl crl-file <crlfile>",
        "create a new CRL file to be used in a crt-list",
        "a CRL file",
        |args| change(TlsFile::Crl, args, "'new ssl crl-file' expects a filename", Verb::New),
    ),
    changing(
        "set ssl ca-file",
        "set ssl ca-file <cafile> <payload>",
        "replace a CA file",
        "a CA file's transaction",
        |args| set(TlsFile::Ca, args, "'set ssl ca-file' expects a filename and CAs as a payload", Verb::Set),
    ),
    changing(
        "set ssl cert",
        "set ssl cert <certfile> <payload>",
        "replace a certificate file",
        "a certificate's transaction",
        |args| {
            let missing = "'set ssl cert' expects a filename and a certificate as a payload";
            set(TlsFile::Certificate, args, missing, Verb::Set)
        },
    ),
    changing(
        "set ssl crl-file",
        "set ssl crl-file <crlfile> <payload>",
        "replace a CRL file",
        "a CRL file's transaction",
        |args| set(TlsFile::Crl, args, "'set ssl crl-file' expects a filename and CRLs as a payload", Verb::Set),
    ),
    changing(
        "set ssl ocsp-response",
        "set ssl ocsp-response <resp|payload>",
        "update a certificate's OCSP Response from a base64-encode DER",
        "an OCSP response",
        |args| {
            const MISSING: &str = "'set ssl ocsp-response' expects response in base64 encoding.";
            let response = args.payload().map(text).or_else(|| args.word()).ok_or_else(|| Refusal::new(MISSING))?;
            Ok(Certificates::SetResponse(response))
        },
    )
    .tells(0),
    changing(
        "set ssl tls-key",
        "set ssl tls-key [id|file] <key>",
        "set the next TLS key for the <id> or <file> listener to <key>",
        "ticket keys",
        add_ticket_key,
    ),
    Entry::new(
        "show ssl ca-file",
        "show ssl ca-file [<cafile>[:<index>]]",
        "display the SSL CA files used in memory, or the details of a <cafile>, or a single certificate of index <index> of a CA file <cafile>",
        |args| list(TlsFile::Ca, args),
    )
    .level(Level::Operator),
    Entry::new(
        "show ssl cert",
        "show ssl cert [<certfile>]",
        "display the SSL certificates used in memory, or the details of a file",
        |args| list(TlsFile::Certificate, args),
    )
    .level(Level::Operator),
    Entry::new(
        "show ssl crl-file",
        "show ssl crl-file [<crlfile[:<index>>]]",
        "display the SSL CRL files used in memory, or the details of a <crlfile>, or a single CRL of index <index> of CRL file <crlfile>",
        |args| list(TlsFile::Crl, args),
    )
    .level(Level::Operator),
    Entry::new(
        "show ssl crt-list",
        "show ssl crt-list [-n] [<list>]",
        "show the list of crt-lists or the content of a crt-list file <list>",
        show_list,
    )
    .level(Level::Admin),
    Entry::new(
        "show ssl ocsp-response",
        "show ssl ocsp-response [id]",
        "display the IDs of the OCSP responses used in memory, or the details of a single OCSP response",
        responses,
    ),
    Entry::new(
        "show ssl ocsp-updates",
        "show ssl ocsp-updates",
        "display information about the next OCSP updates",
        |args| Ok(Certificates::Updates { json: json(args) }),
    ),
    Entry::new("show ssl providers", "show ssl providers", "show loaded SSL providers", |args| {
        Ok(Certificates::Providers { json: json(args) })
    }),
    Entry::new(
        "show ssl sni",
        "show ssl sni [-f <frontend>] [-A]",
        "display the list of SNI and their corresponding filename, of expired certificates with -A",
        names,
    )
    .level(Level::Operator),
    Entry::new(
        "show tls-keys",
        "show tls-keys [id|*]",
        "show tls keys references or dump tls ticket keys when id specified",
        |args| {
            Ok(match (json(args), args.word()) {
                (false, which @ Some(_)) => Certificates::TicketKeys { which, json: json(args) },
                (json, _) => Certificates::TicketKeys { which: None, json },
            })
        },
    ),
    changing(
        "update ssl ocsp-response",
        "update ssl ocsp-response <certfile>",
        "send an OCSP request for a certificate and update its response",
        "an OCSP response",
        |args| {
            let name = args.require("'update ssl ocsp-response' expects a filename")?;
            Ok(Certificates::UpdateResponse(name))
        },
    ),
];
