//! By which of their rules initiators come to targets, so that nobody looks at the targets of others.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sanwire_iscsi::IscsiName;

use super::target_node::TargetNodeConfig;
use crate::allow::{AllowRule, IpPrefix};

/// What a rule asks of an initiator, as far as that can be looked up.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Entrance {
    /// Nothing.
    Anybody,
    /// There is no rule: it must know a secret.
    Secret,
    /// There is no rule and no secret: it must be on this host.
    Local,
    /// An address.
    Address(IpPrefix),
    /// A name that begins so: as its pattern does.
    Name(Box<str>),
}

impl Entrance {
    /// Before those of all names.
    pub(super) fn first_name() -> Entrance {
        Entrance::Name("".into())
    }

    /// Those of a target. Who may use it comes by one of them; not all who do may.
    pub(super) fn of_target(config: &TargetNodeConfig) -> BTreeSet<Entrance> {
        let rules = config.allow.rules();
        if rules.is_empty() {
            let is_open = config.authentication.users.is_empty();
            return BTreeSet::from([if is_open { Entrance::Local } else { Entrance::Secret }]);
        }
        let of_rule = |rule: &AllowRule| match rule {
            AllowRule::Any => Some(Entrance::Anybody),
            AllowRule::Prefix(prefix) => Some(Entrance::Address(*prefix)),
            AllowRule::Initiator(pattern) => Some(Entrance::Name(pattern.literal_prefix().into())),
            AllowRule::Mac(_) | AllowRule::Client(_) => None,
        };
        rules.iter().filter_map(of_rule).collect()
    }

    /// Those by which whoever is at this address may come, whatever its name is.
    pub(super) fn of_address(address: IpAddr) -> impl Iterator<Item = Entrance> {
        IpPrefix::all_of(address).map(Entrance::Address)
    }

    /// Those by which an initiator of this name may come, wherever it is.
    pub(super) fn of_name(name: &IscsiName) -> impl Iterator<Item = Entrance> {
        let name = name.as_str();
        let beginnings = (0..=name.len()).filter_map(|length| name.get(..length));
        beginnings.map(|beginning| Entrance::Name(beginning.into()))
    }
}
