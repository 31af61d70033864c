//! What front ends count in the words of their own protocols: the metrics take it as it is.

use sanwire_core::{Carried, LinkId};

/// What is counted under one name.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TallyFamily {
    /// The name of the metric.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// The label that tells its counts apart.
    pub(crate) label: &'static str,
}

/// A count that only grows.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) family: &'static TallyFamily,
    pub(crate) of: TallyOf,
    pub(crate) count: u64,
}

/// Which of its family a count is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum TallyOf {
    /// That of a link of the front end, which has the name of its wire.
    Link(LinkId),
    Named(String),
}

impl TallyFamily {
    /// One that is called so.
    pub(crate) fn named(&'static self, name: &str, count: u64) -> Tally {
        Tally { family: self, of: TallyOf::Named(name.to_owned()), count }
    }
}

/// What a wire says of the data that it carries: how much of it the server has copied.
pub(crate) struct CarriedFamilies {
    written: TallyFamily,
    read: TallyFamily,
}

impl CarriedFamilies {
    /// With these names.
    pub(crate) const fn new(written: &'static str, read: &'static str) -> Self {
        CarriedFamilies {
            written: TallyFamily { name: written, help: "Bytes that writes have brought", label: "memory" },
            read: TallyFamily { name: read, help: "Bytes that answers have carried", label: "memory" },
        }
    }

    pub(crate) fn tallies(&'static self, written: Carried, answered: Carried) -> [Tally; 4] {
        [
            self.written.named("where they came", written.in_place),
            self.written.named("copied", written.copied),
            self.read.named("where they were", answered.in_place),
            self.read.named("copied", answered.copied),
        ]
    }
}
