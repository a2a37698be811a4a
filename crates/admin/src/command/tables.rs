//! Commands that show, set and remove entries of stick tables.

use super::{Answer, Executor, Piece, answer::PIECE};
use penstock_config::bytes_of;
use penstock_control::{Level, Severity, Tables};
use penstock_rules::table::{Data, DataKind, Entry, Filter, KeyError, Millis, Operator, Removal, SHOWN, StickTable};
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;

const SHOW_ARGUMENTS: &str =
    "Optional argument only supports \"data.<store_data_type>\" <operator> <value> and key <key>";
const CLEAR_ARGUMENTS: &str = "Required arguments: <table> \"data.<store_data_type>\" <operator> <value> or <table> key <key> or <table> ptr <ptr>";
const SET_ARGUMENTS: &str = "Required arguments: <table> key <key> [data.<store_data_type> <value>]* or <table> ptr <ptr> [data.<store_data_type> <value>]*";
const NO_ENTRY: &str = "No entry can be found matching ptr.";

/// The entries that a command concerns.
enum Chosen {
    /// The entries that meet all conditions.
    Filters(Vec<Filter>),
    /// The entry with this key.
    Key(Box<[u8]>),
    /// The entry that `show table` shows under this number.
    Number(u64),
}

impl Executor {
    pub(super) fn tables(&self, command: Tables, level: Level) -> Answer {
        let (name, words) = match &command {
            Tables::Show { name: None, json: true, .. } => {
                let tables = self.handle.tables();
                return Answer::data(format!(
                    "{}\n",
                    tables.iter().map(|table| Json::Object(facts(table))).collect::<Json>()
                ));
            }
            Tables::Show { name: None, .. } => {
                let tables = self.handle.tables();
                return Answer::lines(tables.into_iter().map(|table| header(&table)));
            }
            Tables::Show { name: Some(name), words, .. } | Tables::Set(name, words) | Tables::Clear(name, words) => {
                (name, words)
            }
        };
        let Some(table) = self.handle.tables().into_iter().find(|table| table.name == *name) else {
            return Answer::error("No such table");
        };
        let done = match &command {
            Tables::Show { json: true, .. } if level < Level::Operator => {
                Ok(Answer::data(format!("{}\n", Json::Object(facts(&table)))))
            }
            Tables::Show { .. } if level < Level::Operator => {
                Ok(Answer::data(header(&table) + "# contents not dumped due to insufficient privileges\n"))
            }
            Tables::Show { json, .. } => self.show_table(table, words, *json),
            Tables::Set(..) => self.set_table(table, words),
            Tables::Clear(..) => self.clear_table(table, words),
        };
        done.unwrap_or_else(Answer::error)
    }

    fn show_table(&self, table: Arc<StickTable>, words: &[String], json: bool) -> Result<Answer, String> {
        let now = self.handle.table_time();
        if json {
            return self.table_objects(table, words);
        }
        let filters = match chosen(&table, words, SHOW_ARGUMENTS, "Showing keys from")? {
            Chosen::Key(key) => {
                let Some(entry) = table.lookup_key(&key, now) else { return Ok(Answer::nothing()) };
                let mut out = header(&table).into_bytes();
                line(&table, &entry, now, &mut out);
                return Ok(Answer::data(out));
            }
            Chosen::Number(number) => {
                return Ok(Answer::beside("table", move |pieces| {
                    let Some(entry) = numbered(&table, number, now) else {
                        pieces.say(Severity::Error, NO_ENTRY);
                        return;
                    };
                    let mut out = header(&table).into_bytes();
                    line(&table, &entry, now, &mut out);
                    pieces.give(Piece::Data(out));
                }));
            }
            Chosen::Filters(filters) => filters,
        };
        Ok(Answer::beside("table", move |pieces| {
            let mut out = header(&table).into_bytes();
            for entry in table.shown(now, |entry| table.meets(entry, &filters, now)) {
                line(&table, &entry, now, &mut out);
                if out.len() > PIECE && !pieces.give(Piece::Data(std::mem::take(&mut out))) {
                    return;
                }
            }
            pieces.give(Piece::Data(out));
        }))
    }

    /// `show table ... json`: one object, whose entries are objects.
    fn table_objects(&self, table: Arc<StickTable>, words: &[String]) -> Result<Answer, String> {
        let now = self.handle.table_time();
        let chosen = chosen(&table, words, SHOW_ARGUMENTS, "Showing keys from")?;
        Ok(Answer::beside("table", move |pieces| {
            let entries: Box<dyn Iterator<Item = Arc<Entry>>> = match &chosen {
                Chosen::Key(key) => Box::new(table.lookup_key(key, now).into_iter()),
                Chosen::Number(number) => Box::new(numbered(&table, *number, now).into_iter()),
                Chosen::Filters(filters) => Box::new(table.shown(now, |entry| table.meets(entry, filters, now))),
            };
            let mut out = json!(facts(&table)).to_string();
            out.pop();
            out.push_str(",\"entries\":[");
            let mut separator = "";
            for entry in entries {
                out.push_str(std::mem::replace(&mut separator, ","));
                out.push_str(&object(&table, &entry, now).to_string());
                if out.len() > PIECE && !pieces.give(Piece::Data(std::mem::take(&mut out).into_bytes())) {
                    return;
                }
            }
            out.push_str("]}\n");
            pieces.give(Piece::Data(out.into_bytes()));
        }))
    }

    fn set_table(&self, table: Arc<StickTable>, words: &[String]) -> Result<Answer, String> {
        let set = match words.first().map(String::as_str) {
            Some("key" | "ptr") => chosen(&table, words, SET_ARGUMENTS, "Inserting keys into")?,
            Some(word) if word.starts_with("data.") => {
                return Err("content-based lookup is only supported with the \"show\" and \"clear\" actions".into());
            }
            _ => return Err(SET_ARGUMENTS.into()),
        };
        let mut words = words.iter().skip(2);
        let mut values = Vec::new();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("data.") else {
                return Err("\"data.<type>\" followed by a value expected".into());
            };
            let data = stored(&table, name)?;
            let value = words.next().and_then(|value| number(value));
            values.push((data, value.ok_or("Require a valid integer value to store")?));
        }
        let now = self.handle.table_time();
        let store = move |table: &StickTable, entry: &Arc<Entry>| {
            for (data, value) in &values {
                table.store(entry, *data, *value as u64, now);
            }
        };
        // Everything has been parsed; only now is anything changed.
        match set {
            Chosen::Key(key) => {
                let entry = table.get_or_insert_key(&key, now).ok_or("Unable to allocate a new entry")?;
                store(&table, &entry);
                Ok(Answer::nothing())
            }
            Chosen::Number(number) => Ok(Answer::beside("table", move |pieces| match numbered(&table, number, now) {
                Some(entry) => store(&table, &entry),
                None => _ = pieces.say(Severity::Error, NO_ENTRY),
            })),
            Chosen::Filters(_) => Err(SET_ARGUMENTS.into()),
        }
    }

    fn clear_table(&self, table: Arc<StickTable>, words: &[String]) -> Result<Answer, String> {
        let now = self.handle.table_time();
        let removed = |removal| match removal {
            Removal::InUse => Err("Entry currently in use, cannot remove".to_owned()),
            Removal::Done | Removal::Absent => Ok(()),
        };
        match chosen(&table, words, CLEAR_ARGUMENTS, "Removing keys from")? {
            Chosen::Key(key) => removed(table.remove(&key)).map(|()| Answer::nothing()),
            Chosen::Number(number) => Ok(Answer::beside("table", move |pieces| {
                let done = match numbered(&table, number, now) {
                    Some(entry) => removed(table.remove(entry.key())),
                    None => Err(NO_ENTRY.to_owned()),
                };
                if let Err(sentence) = done {
                    pieces.say(Severity::Error, sentence);
                }
            })),
            Chosen::Filters(filters) => Ok(Answer::beside("table", move |_| table.clear(&filters, now))),
        }
    }
}

/// Parses what follows the name of a table.
fn chosen(table: &StickTable, words: &[String], arguments: &str, doing: &str) -> Result<Chosen, String> {
    /// As many as HAProxy accepts.
    const MOST: usize = 4;
    let Some(first) = words.first() else { return Ok(Chosen::Filters(Vec::new())) };
    match first.as_str() {
        "key" => {
            let key = words.get(1).filter(|key| !key.is_empty()).ok_or("Key value expected")?;
            return read_key(table, key, doing).map(Chosen::Key);
        }
        "ptr" => {
            let digits = words.get(1).ok_or("Pointer value expected")?;
            let number = u64::from_str_radix(digits.strip_prefix("0x").unwrap_or(digits), 16);
            return number.map(Chosen::Number).map_err(|_| "Invalid pointer".to_owned());
        }
        word if word.starts_with("data.") => {}
        _ => return Err(arguments.to_owned()),
    }
    let mut filters = Vec::new();
    for (at, words) in words.chunks(3).enumerate() {
        let Some(name) = words[0].strip_prefix("data.") else { break };
        if at == MOST {
            // Words are counted including the three before.
            let (number, before) = (3 * at + 4, &filters.last().map_or(0, |filter: &Filter| filter.value));
            return Err(format!("Detected extra data in filter, {number}th word of input, after '{before}'"));
        }
        let wrong = |sentence: String| format!("Filter entry #{}: {sentence}", at + 1);
        let data = stored(table, name).map_err(wrong)?;
        let operator = words
            .get(1)
            .and_then(|word| Operator::parse(word))
            .ok_or_else(|| wrong("Require and operator among \"eq\", \"ne\", \"le\", \"ge\", \"lt\", \"gt\"".into()))?;
        let value = words.get(2).and_then(|word| number(word));
        let value = value.ok_or_else(|| wrong("Require a valid integer value to compare against".into()))?;
        filters.push(Filter { data, operator, value });
    }
    Ok(Chosen::Filters(filters))
}

fn read_key(table: &StickTable, text: &str, doing: &str) -> Result<Box<[u8]>, String> {
    table.spec.key.read(&bytes_of(text)).map_err(|error| match error {
        KeyError::Invalid => "Invalid key".to_owned(),
        KeyError::Unwritable => {
            format!("{doing} tables of type other than ip, ipv6, string and integer is not supported")
        }
    })
}

/// A data type that the table stores.
fn stored(table: &StickTable, name: &str) -> Result<Data, String> {
    let known = Data::ALL.iter().copied().find(|data| data.name() == name).ok_or("Unknown data type")?;
    let has = table.spec.schema.has(known);
    has.then_some(known).ok_or_else(|| "Data type not stored in this table".to_owned())
}

/// Parses a number, truncated to 64 bits.
fn number(text: &str) -> Option<i64> {
    text.parse::<i64>().ok().or_else(|| text.parse::<u64>().ok().map(|n| n as i64))
}

fn header(table: &StickTable) -> String {
    let kind = table.spec.key.name();
    format!("# table: {}, type: {kind}, size:{}, used:{}\n", table.name, table.spec.size, table.len())
}

/// Identifies an entry for as long as it exists.
fn number_of(entry: &Arc<Entry>) -> u64 {
    Arc::as_ptr(entry).addr() as u64
}

/// The entry that `show table` shows under this number.
fn numbered(table: &StickTable, number: u64, now: Millis) -> Option<Arc<Entry>> {
    table.shown(now, |_| true).find(|entry| number_of(entry) == number)
}

fn line(table: &StickTable, entry: &Arc<Entry>, now: Millis, out: &mut Vec<u8>) {
    out.extend(format!("{:#x}: key=", number_of(entry)).bytes());
    table.spec.key.write(entry.key(), out);
    out.extend(format!(" use={} exp={} shard=0", entry.trackers(), table.expires_in(entry, now)).bytes());
    each_value(table, entry, now, |name, period, value| {
        let period = if period > 0 { format!("({period})") } else { String::new() };
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        out.extend(format!(" {name}{period}={value}").bytes());
    });
    out.push(b'\n');
}

/// A table without its entries: what `show table` shows in its first line.
fn facts(table: &StickTable) -> Map<String, Json> {
    let facts = json!({
        "table": table.name, "type": table.spec.key.name(), "size": table.spec.size, "used": table.len(),
    });
    facts.as_object().cloned().unwrap_or_default()
}

fn object(table: &StickTable, entry: &Arc<Entry>, now: Millis) -> Json {
    let mut key = Vec::new();
    table.spec.key.write(entry.key(), &mut key);
    let mut object = json!({
        "id": format!("{:#x}", number_of(entry)), "key": String::from_utf8_lossy(&key), "use": entry.trackers(),
        "exp": table.expires_in(entry, now),
    });
    each_value(table, entry, now, |name, _, value| object[name] = value);
    object
}

/// Calls `show` with the name, the period of a rate, and the value of everything that an entry stores.
fn each_value(table: &StickTable, entry: &Arc<Entry>, now: Millis, mut show: impl FnMut(&str, Millis, Json)) {
    for &data in SHOWN {
        let Some((_, period, len)) = table.spec.schema.stored().find(|(stored, ..)| *stored == data) else { continue };
        let name = data.name();
        if data == Data::ServerKey {
            show(name, 0, json!(table.server_key(entry).as_deref().unwrap_or("-")));
            continue;
        }
        for index in 0..len {
            let value = table.value(entry, data, index, now).unwrap_or(0);
            // The two elements of `gpc_rate` are shown as `gpc0_rate` and `gpc1_rate`.
            let name = match data.kind() {
                DataKind::Counts => format!("{name}{index}"),
                DataKind::Rates => name.replace('_', &format!("{index}_")),
                DataKind::Count | DataKind::Rate => name.to_owned(),
            };
            show(&name, period, json!(value));
        }
    }
}
