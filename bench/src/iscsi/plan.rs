//! What is measured, in the order of a round.

use anyhow::Result;

use crate::load::{ClientCommand, Load, iscsi_perf, line, loaded, read_iscsi_perf, read_sanwire, sanwire_bench};
use crate::sample::{Row, Sample};

use super::MTU_BYTES;
use super::servers::{Bed, Contender, Store, url};

/// Who puts the load on the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Client {
    /// libiscsi's: one connection, no digests.
    Perf,
    Own(Own),
}

/// How `sanwire bench` connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Own {
    pub(super) connections: u16,
    pub(super) has_digests: bool,
}

/// One thing to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Job {
    contender: Contender,
    store: Store,
    client: Client,
    load: Load,
}

/// The loads that targets speak of.
pub(super) const SMALL: Load = Load::random_read(4096, 32);
pub(super) const SINGLE: Load = Load::random_read(4096, 1);
pub(super) const LARGE: Load = Load::random_read(64 << 10, 32);
const SMALL_WRITES: Load = Load::random_write(4096, 32);

/// How our own client connects.
pub(super) const PLAIN: Own = Own { connections: 1, has_digests: false };
pub(super) const DIGESTS: Own = Own { connections: 1, has_digests: true };
pub(super) const FOUR: Own = Own { connections: 4, has_digests: false };

/// Everything, in the order of a round. `is_quick` leaves out what no target speaks of.
pub(super) fn jobs(is_quick: bool) -> Vec<Job> {
    let with_perf = |contender, store, load| Job { contender, store, client: Client::Perf, load };
    let sanwire = |store, load| with_perf(Contender::Sanwire, store, load);
    let tgt = |store, load| with_perf(Contender::Tgt, store, load);
    let own = |own, load| Job { client: Client::Own(own), ..sanwire(Store::Ram, load) };
    let mut jobs = vec![
        sanwire(Store::Ram, SMALL),
        tgt(Store::Null, SMALL),
        sanwire(Store::Null, SMALL),
        tgt(Store::Tmpfs, SMALL),
        sanwire(Store::Tmpfs, SMALL),
        tgt(Store::Null, SINGLE),
        sanwire(Store::Ram, SINGLE),
        tgt(Store::Tmpfs, SINGLE),
        tgt(Store::Null, LARGE),
        sanwire(Store::Ram, LARGE),
        tgt(Store::Tmpfs, LARGE),
        own(PLAIN, SMALL),
        own(DIGESTS, SMALL),
        own(FOUR, SMALL),
        own(PLAIN, LARGE),
        own(DIGESTS, LARGE),
        own(FOUR, LARGE),
        own(PLAIN, SINGLE),
        own(PLAIN, SMALL_WRITES),
    ];
    if is_quick {
        let is_yardstick = |job: &Job| job.contender == Contender::Tgt && job.store == Store::Null;
        jobs.retain(|job| job.contender == Contender::Sanwire && job.client != Client::Own(FOUR) || is_yardstick(job));
    }
    jobs
}

/// Who, on what store, as rows call it.
pub(super) fn contender_name(contender: Contender, store: Store) -> String {
    match contender {
        Contender::Sanwire => format!("iSCSI {}", store.name()),
        Contender::Tgt => format!("tgt {}", store.name()),
    }
}

/// What, as rows call it.
pub(super) fn load_name(load: &Load, client: Client) -> String {
    match client {
        Client::Perf => load.name(),
        Client::Own(Own { connections: 1, has_digests: false }) => format!("{} (own client)", load.name()),
        Client::Own(Own { connections: 1, has_digests: true }) => format!("{} (digests)", load.name()),
        Client::Own(Own { connections, .. }) => format!("{} ({connections} connections)", load.name()),
    }
}

/// The client's command.
pub(super) fn client_command(bed: &Bed, client: Client, load: &Load, url: &str) -> ClientCommand {
    match client {
        Client::Perf => iscsi_perf(load, bed.seconds, url),
        Client::Own(Own { connections, has_digests }) => {
            let digests = if has_digests { " --digests" } else { "" };
            let more = format!(" --connections {connections}{digests}");
            sanwire_bench(&bed.program, load, bed.seconds, url, &bed.client_key, &more)
        }
    }
}

impl Job {
    /// Its row, without samples.
    pub(super) fn row(&self, bed: &Bed) -> Row {
        Row {
            mtu_bytes: MTU_BYTES,
            contender: contender_name(self.contender, self.store),
            load: load_name(&self.load, self.client),
            command: line(&self.client(bed)),
            samples: vec![],
        }
    }

    /// Measures once. Nothing when the contender is not there.
    ///
    /// # Errors
    /// When a program fails.
    pub(super) fn measure(&self, bed: &Bed) -> Result<Option<Sample>> {
        let Some(server) = bed.server(self.contender) else { return Ok(None) };
        let read = |text: &str| match self.client {
            Client::Perf => read_iscsi_perf(text, &self.load),
            Client::Own(_) => read_sanwire(text),
        };
        loaded(&bed.host, server, &self.client(bed), read).map(Some)
    }

    fn client(&self, bed: &Bed) -> ClientCommand {
        client_command(bed, self.client, &self.load, &url(self.contender, self.store))
    }
}
