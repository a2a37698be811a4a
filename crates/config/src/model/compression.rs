//! HTTP compression as a section configures it (manual: `compression`).

/// The `compression` lines of one section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compression {
    /// `algo` and `algo-res`, in the order written.
    pub algorithms: Vec<CompressionAlgorithm>,
    /// `algo-req`.
    pub request_algorithm: Option<CompressionAlgorithm>,
    /// `type` and `type-res`: beginnings of content types; none of them for all types.
    pub types: Vec<String>,
    /// `type-req`, likewise.
    pub request_types: Vec<String>,
    /// `offload`.
    pub offload: bool,
    /// `direction` includes responses.
    pub responses: bool,
    /// `direction` includes requests.
    pub requests: bool,
    /// Whether the directions are those of `filter comp-req` and `filter comp-res`.
    pub by_filters: bool,
    /// `minsize-res`, in bytes.
    pub min_size: u64,
    /// `minsize-req`, in bytes.
    pub request_min_size: u64,
}

impl Default for Compression {
    fn default() -> Self {
        Compression {
            algorithms: Vec::new(),
            request_algorithm: None,
            types: Vec::new(),
            request_types: Vec::new(),
            offload: false,
            responses: true,
            requests: false,
            by_filters: false,
            min_size: 0,
            request_min_size: 0,
        }
    }
}

/// A compression algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompressionAlgorithm {
    /// The bytes as they are.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950, which is what HTTP means by `deflate`.
    Deflate,
    /// RFC 1951, which is what some clients mean by `deflate`.
    RawDeflate,
    /// RFC 7932, beyond HAProxy.
    Brotli,
    /// RFC 8878, beyond HAProxy.
    Zstd,
}

impl CompressionAlgorithm {
    /// All algorithms, by their names in the configuration.
    pub const NAMED: &[(&'static str, CompressionAlgorithm)] = &[
        ("identity", CompressionAlgorithm::Identity),
        ("gzip", CompressionAlgorithm::Gzip),
        ("deflate", CompressionAlgorithm::Deflate),
        ("raw-deflate", CompressionAlgorithm::RawDeflate),
        ("br", CompressionAlgorithm::Brotli),
        ("zstd", CompressionAlgorithm::Zstd),
    ];

    /// The name in the configuration, and in `res.comp_algo`.
    pub fn name(self) -> &'static str {
        match self {
            CompressionAlgorithm::Identity => "identity",
            CompressionAlgorithm::Gzip => "gzip",
            CompressionAlgorithm::Deflate => "deflate",
            CompressionAlgorithm::RawDeflate => "raw-deflate",
            CompressionAlgorithm::Brotli => "br",
            CompressionAlgorithm::Zstd => "zstd",
        }
    }

    /// Whether HAProxy does not know it.
    pub fn is_beyond_haproxy(self) -> bool {
        matches!(self, CompressionAlgorithm::Brotli | CompressionAlgorithm::Zstd)
    }

    /// The coding's name in HTTP.
    pub fn coding(self) -> &'static str {
        match self {
            CompressionAlgorithm::RawDeflate => "deflate",
            other => other.name(),
        }
    }
}
