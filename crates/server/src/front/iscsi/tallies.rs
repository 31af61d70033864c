//! What iSCSI counts in its own words.

use sanwire_core::Movement;
use sanwire_iscsi::{Movements, Server};

use crate::front::{Tally, TallyFamily};

static DIGEST_ERRORS: TallyFamily = TallyFamily {
    name: "sanwire_iscsi_digest_errors",
    help: "Headers and data segments whose digest was wrong",
    label: "part",
};
static RECOVERIES: TallyFamily = TallyFamily {
    name: "sanwire_iscsi_recoveries",
    help: "Sessions that were begun anew (0), what was sent again within one (1), commands that went on by another connection (2)",
    label: "level",
};

static PLACED: TallyFamily = TallyFamily {
    name: "sanwire_iscsi_data_bytes",
    help: "Bytes of data that have come into the frames of commands",
    label: "transport",
};
static DIRECT: TallyFamily = TallyFamily {
    name: "sanwire_iscsi_direct_bytes",
    help: "Those of them that were received straight into their frames, without a copy",
    label: "transport",
};
static COPIED: TallyFamily = TallyFamily {
    name: "sanwire_iscsi_copied_bytes",
    help: "Bytes that were copied to come there, each as often as it was",
    label: "transport",
};
static KEYS: TallyFamily =
    TallyFamily { name: "sanwire_iser_memory_keys", help: "Keys of memory (STags) that there have been", label: "of" };

pub(super) fn of(server: &Server) -> Vec<Tally> {
    let tally = server.tally();
    let errors = [("header", tally.header_digest_errors), ("data", tally.data_digest_errors)];
    let errors = errors.map(|(part, count)| DIGEST_ERRORS.named(part, count));
    let recoveries = ["0", "1", "2"].into_iter().zip(tally.recoveries);
    let recoveries = recoveries.map(|(level, count)| RECOVERIES.named(level, count));
    errors.into_iter().chain(recoveries).chain(data(&server.movements())).collect()
}

/// How what initiators have sent came to its place.
fn data(movements: &Movements) -> Vec<Tally> {
    let Movements { stream, rdma } = movements;
    let told = [("TCP", stream), ("RDMA", rdma)].into_iter().flat_map(|(transport, movement)| {
        let Movement { placed_bytes, direct_bytes, copied_bytes, .. } = *movement;
        let counts = [(&PLACED, placed_bytes), (&DIRECT, direct_bytes), (&COPIED, copied_bytes)];
        counts.map(|(family, bytes)| family.named(transport, bytes))
    });
    let keys = rdma.rdma.map_or(0, |rdma| rdma.stags_ever);
    told.chain([KEYS.named("initiators", keys)]).collect()
}
