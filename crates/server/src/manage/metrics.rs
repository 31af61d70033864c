//! What every layer counts, in the text that Prometheus reads (OpenMetrics).
//!
//! Nothing is kept for it: the shards are asked for their plain numbers when somebody wants to know. The names begin with
//! `sanwire_`; seconds and bytes are the units; what is counted only grows, until the server ends.

mod clients;
mod dvds;
mod pools;
mod process;
mod protocols;
mod requests;
mod sessions;
mod stores;
mod text;
mod volumes;
mod wires;

use sanwire_core::{Lun, quota};
use sanwire_device::LogicalUnit;

use self::dvds::of_dvds;
pub(super) use self::pools::PoolsNow;
use self::process::of_process;
use self::protocols::{of_logins, of_protocols, of_targets};
pub(super) use self::requests::RequestCounts;
use self::sessions::{of_each_session, of_shards};
use self::stores::of_stores;
pub use self::text::MetricsText;
use self::text::{Family, Labels, Placed, Sample};
use self::wires::{WireSamples, of_wires};
pub(super) use self::wires::{portals, wires};
use super::deviations::deviations;
use super::response::QuotaStatistics;
use super::{AuditLog, Manager};
use crate::counting::Counted;

/// What the program was built from, where who built it has said so: sources need not come with their history.
const COMMIT: &str = match option_env!("SANWIRE_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

impl Manager {
    /// All metrics, as text.
    pub(super) fn metrics(&self, counted: &[Counted], pools: &PoolsNow) -> MetricsText {
        MetricsText::of(self.families(counted, pools), &self.requests.parts())
    }

    /// Every family, also such as have no samples now.
    fn families(&self, counted: &[Counted], pools: &PoolsNow) -> Vec<Family> {
        let mut families = self.of_server();
        families.extend(self.of_volumes(counted));
        let units = self.target.units().iter();
        families.extend(of_stores(&units));
        families.extend(of_dvds(&units));
        families.extend(pools.families());
        families.extend(of_wires(counted, self.target.wires(), |wire| self.target.takes_connections(wire)));
        families.extend(of_protocols(counted));
        families.extend(of_targets(counted));
        families.extend(of_logins(&self.target.login_results()));
        families.extend(of_shards(counted));
        families.extend(of_each_session(counted));
        families.extend(self.of_clients(counted));
        families.extend(of_quotas(&self.quotas(counted)));
        families.push(self.requests.family());
        families.extend(of_process(self.began.at));
        families
    }

    fn of_server(&self) -> Vec<Family> {
        let version = env!("CARGO_PKG_VERSION");
        let running = self.jobs.list().iter().filter(|job| job.ended.is_none()).count() as u64;
        let one = |name, help, labels, sample| Family { name, help, samples: vec![(0, labels, sample)] };
        let gauge = |name, help, value| one(name, help, Labels::none(), Sample::Gauge(value));
        let counter = |name, help, count| one(name, help, Labels::none(), Sample::Counter(count));
        let revision = self.target.revisions().look().server();
        let deviations = deviations(&self.kept.changes(), self.target.clients()).len() as u64;
        let (events, missing) = (self.target.events(), self.kept.missing.len() as u64);
        let info = |name, help, labels| one(name, help, labels, Sample::Gauge(1));
        vec![
            info(
                "sanwire_build_info",
                "The version of the program",
                Labels::of([("version", version), ("commit", COMMIT)]),
            ),
            info("sanwire_server_info", "The name of the server", Labels::of([("name", &self.name)])),
            gauge("sanwire_revision", "Rises with each change of what is served", revision),
            gauge("sanwire_deviations", "Things that differ from the configuration", deviations),
            gauge("sanwire_missing_volumes", "Volumes that should be served and cannot be opened", missing),
            gauge("sanwire_jobs_running", "Changes that take long and go on", running),
            counter("sanwire_events", "What has happened, as `ctl events` tells", events.count()),
            gauge("sanwire_event_subscribers", "Those who wait for the next event now", events.waiting()),
            counter(
                "sanwire_audit_write_errors",
                "Lines that could not be written into the audit log",
                self.audit.as_ref().map_or(0, AuditLog::write_errors),
            ),
        ]
    }
}

fn place_of(volume: Lun) -> u64 {
    volume.number().into()
}

fn label_of(volume: &LogicalUnit) -> Labels {
    Labels::of([("volume", volume.identity().name())])
}

/// What has passed in both directions.
fn both(received: u64, sent: u64) -> WireSamples {
    vec![(Some("in"), Sample::Counter(received)), (Some("out"), Sample::Counter(sent))]
}

/// The limits of what somebody may hold, and who has come up to them.
fn of_quotas(quotas: &[QuotaStatistics]) -> Vec<Family> {
    let of = |name, help, value: &dyn Fn(&QuotaStatistics) -> Sample| {
        let sample = |quota: &QuotaStatistics| {
            let labels = Labels::of([("holder", &quota.holder), ("quota", &quota.name), ("unit", &quota.unit)]);
            let place = quota::ALL.iter().position(|one| one.holder.name() == quota.holder && one.name == quota.name);
            (place.unwrap_or_default() as u64, labels, value(quota))
        };
        Family { name, help, samples: quotas.iter().map(sample).collect() }
    };
    vec![
        of("sanwire_quota_limit", "What one holder may have", &|quota| Sample::Gauge(quota.limit)),
        of("sanwire_quota_most", "What one holder has had at the most", &|quota| {
            Sample::Gauge(quota.most.unwrap_or_default())
        }),
        of("sanwire_quota_refused", "How often something was refused for it", &|quota| Sample::Counter(quota.refused)),
    ]
}

#[cfg(test)]
mod tests;
