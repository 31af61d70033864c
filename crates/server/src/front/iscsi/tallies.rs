//! What iSCSI counts in its own words.

use sanwire_iscsi::Server;

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

pub(super) fn of(server: &Server) -> Vec<Tally> {
    let tally = server.tally();
    let errors = [("header", tally.header_digest_errors), ("data", tally.data_digest_errors)];
    let errors = errors.map(|(part, count)| DIGEST_ERRORS.named(part, count));
    let recoveries = ["0", "1", "2"].into_iter().zip(tally.recoveries);
    errors.into_iter().chain(recoveries.map(|(level, count)| RECOVERIES.named(level, count))).collect()
}
