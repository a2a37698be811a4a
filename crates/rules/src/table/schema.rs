//! What a table stores: the data types of the manual's `stick-table`, and where each is in an entry.

use super::{Millis, rate};

macro_rules! data {
    ($($(#[$doc:meta])* $variant:ident = $name:literal $kind:ident,)*) => {
        /// A data type that entries of a table may store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Data {
            $($(#[$doc])* $variant,)*
        }

        impl Data {
            /// All data types.
            pub const ALL: &'static [Data] = &[$(Data::$variant),*];
            /// The manual's name.
            pub fn name(self) -> &'static str {
                match self { $(Data::$variant => $name,)* }
            }
            /// How the data type is counted.
            pub fn kind(self) -> DataKind {
                match self { $(Data::$variant => DataKind::$kind,)* }
            }
        }
    };
}

/// How a data type is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKind {
    /// A number that only increases, or that is set.
    Count,
    /// A rate over a period, written in parentheses.
    Rate,
    /// An array of numbers, whose size is given in parentheses.
    Counts,
    /// An array of rates, whose size and period are given in parentheses.
    Rates,
}

data! {
    /// The server a client was sent to.
    ServerId = "server_id" Count,
    /// The name or address of that server.
    ServerKey = "server_key" Count,
    /// General purpose tags.
    Gpt = "gpt" Counts,
    /// The first general purpose tag.
    Gpt0 = "gpt0" Count,
    /// General purpose counters.
    Gpc = "gpc" Counts,
    /// Rates of the general purpose counters.
    GpcRate = "gpc_rate" Rates,
    /// The first general purpose counter.
    Gpc0 = "gpc0" Count,
    /// Rate of the first general purpose counter.
    Gpc0Rate = "gpc0_rate" Rate,
    /// The second general purpose counter.
    Gpc1 = "gpc1" Count,
    /// Rate of the second general purpose counter.
    Gpc1Rate = "gpc1_rate" Rate,
    /// Connections since the entry was made.
    ConnCnt = "conn_cnt" Count,
    /// Connections now.
    ConnCur = "conn_cur" Count,
    /// Connection rate.
    ConnRate = "conn_rate" Rate,
    /// Sessions since the entry was made.
    SessCnt = "sess_cnt" Count,
    /// Session rate.
    SessRate = "sess_rate" Rate,
    /// HTTP requests since the entry was made.
    HttpReqCnt = "http_req_cnt" Count,
    /// HTTP request rate.
    HttpReqRate = "http_req_rate" Rate,
    /// Requests that were refused or were answered with 4xx.
    HttpErrCnt = "http_err_cnt" Count,
    /// Their rate.
    HttpErrRate = "http_err_rate" Rate,
    /// Requests answered with 5xx.
    HttpFailCnt = "http_fail_cnt" Count,
    /// Their rate.
    HttpFailRate = "http_fail_rate" Rate,
    /// Bytes from clients.
    BytesInCnt = "bytes_in_cnt" Count,
    /// Their rate.
    BytesInRate = "bytes_in_rate" Rate,
    /// Bytes to clients.
    BytesOutCnt = "bytes_out_cnt" Count,
    /// Their rate.
    BytesOutRate = "bytes_out_rate" Rate,
    /// What was wrong or odd in what clients sent over HTTP/2.
    GlitchCnt = "glitch_cnt" Count,
    /// Its rate.
    GlitchRate = "glitch_rate" Rate,
}

/// The most general purpose counters or tags that one table may have.
pub const MAX_ARRAY: u32 = 100;

/// One stored data type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) at: usize,
    pub(super) period: Millis,
    pub(super) len: usize,
}

/// What the entries of a table store.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    columns: [Option<Column>; Data::ALL.len()],
    order: Vec<Data>,
    slots: usize,
}

impl Schema {
    /// Adds a data type; returns false if it is stored already. `period` matters for rates, `len` for arrays.
    pub fn store(&mut self, data: Data, period: Millis, len: u32) -> bool {
        let slot = &mut self.columns[data as usize];
        if slot.is_some() {
            return false;
        }
        let len = len.clamp(1, MAX_ARRAY) as usize;
        let each = if matches!(data.kind(), DataKind::Rate | DataKind::Rates) { rate::SLOTS } else { 1 };
        *slot = Some(Column { at: self.slots, period: period.max(1), len });
        self.slots += each * len;
        self.order.push(data);
        true
    }

    /// Stored data types in the order written, each with its period (0 for counts) and number of elements.
    pub fn stored(&self) -> impl Iterator<Item = (Data, Millis, usize)> + '_ {
        self.order.iter().filter_map(|&data| {
            let column = self.columns[data as usize]?;
            let timed = matches!(data.kind(), DataKind::Rate | DataKind::Rates);
            Some((data, if timed { column.period } else { 0 }, column.len))
        })
    }

    /// Whether a data type is stored.
    pub fn has(&self, data: Data) -> bool {
        self.columns[data as usize].is_some()
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    pub(super) fn column(&self, data: Data) -> Option<Column> {
        self.columns[data as usize]
    }
}
