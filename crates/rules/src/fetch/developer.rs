//! Fetches that show HAProxy's internals (section 7.3.7), which have no counterpart here.

use super::spec::{FetchSpec, refused};
use crate::value::Type::{Bin, Bool, Int, Str};

const HTX: &str = "messages are not kept as HTX here; use the req.hdrs and res.hdrs fetches to look at one";

pub(super) const TABLE: &[FetchSpec] = &[
    refused("internal.htx.data", Int, "Bytes of data in the message.", HTX),
    refused("internal.htx.free", Int, "Bytes free in the message.", HTX),
    refused("internal.htx.free_data", Int, "Bytes free for data in the message.", HTX),
    refused("internal.htx.has_eom", Bool, "Whether the message is complete.", HTX),
    refused("internal.htx.nbblks", Int, "Blocks of the message.", HTX),
    refused("internal.htx.size", Int, "Size of the message's buffer.", HTX),
    refused("internal.htx.used", Int, "Bytes used in the message's buffer.", HTX),
    refused("internal.htx_blk.size", Int, "Size of a block.", HTX),
    refused("internal.htx_blk.type", Str, "Type of a block.", HTX),
    refused("internal.htx_blk.data", Bin, "Data of a block.", HTX),
    refused("internal.htx_blk.hdrname", Str, "Name in a header block.", HTX),
    refused("internal.htx_blk.hdrval", Str, "Value in a header block.", HTX),
    refused("internal.htx_blk.start_line", Str, "Start line in a block.", HTX),
    refused("internal.strm.is_htx", Bool, "Whether the stream carries HTX.", HTX),
];
