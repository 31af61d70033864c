//! What front ends count in the words of their own protocols: the metrics take it as it is.

use sanwire_core::LinkId;

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
