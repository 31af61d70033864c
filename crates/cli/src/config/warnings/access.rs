//! Wires on which nobody is served, and rules that name nobody.

use std::collections::BTreeSet;

use sanwire_io::interface;
use sanwire_server::{AllowRule, TargetNodeConfig, Wire};

use super::ServeConfig;

pub(super) fn warnings(config: &ServeConfig) -> Vec<String> {
    let mut lines: Vec<String> = config.wires.iter().filter_map(|wire| unserved(config, wire)).collect();
    lines.extend(idle_rules(config));
    lines.extend(repeated(config.allow.rules(), "allow"));
    for target in config.targets.iter().filter(|target| config.has_iscsi() && target.allow != config.allow) {
        lines.extend(idle_rules_of_target(target));
        lines.extend(repeated(target.allow.rules(), &format!("target {}: allow", target.name)));
    }
    lines.extend(config.clients.iter().flat_map(|client| clients_volumes(config, client)));
    lines.extend(told_nowhere(config));
    lines
}

/// Rules for addresses that this host does not have.
fn told_nowhere(config: &ServeConfig) -> Vec<String> {
    let Ok(interfaces) = interface::list() else { return Vec::new() };
    let idle = config.announced.rules().iter().filter(|rule| !rule.matches_any(&interfaces));
    idle.map(|rule| {
        format!("announce: {rule} is no address or interface of this host now: clients are told nothing by it (`ip address` lists them)")
    })
    .collect()
}

/// Why nobody, or only this host, is served on a wire.
fn unserved(config: &ServeConfig, wire: &Wire) -> Option<String> {
    if wire.has_targets() {
        return unserved_portal(config, wire);
    }
    let rules = config.allow.rules();
    if wire.has_shelves() {
        let is_served = rules.iter().any(|rule| serves(rule, wire));
        return Some(match is_served {
            true => format!(
                "{wire}: AoE guards nothing: whoever can send frames there with a MAC address that is allowed reads and writes the \
                 volumes; use it on an Ethernet that is yours alone"
            ),
            false => format!("{wire}: nobody is served there: no rule in `allow` is a MAC address or any"),
        });
    }
    let has_clients = !config.clients.is_empty();
    let is_served = has_clients || rules.iter().any(|rule| serves(rule, wire));
    match wire.interface() {
        Some(_) if is_served => None,
        Some(_) if rules.is_empty() => Some(format!(
            "{wire}: nobody is served there: without `allow` only this host is, which is never on the other end of an interface; allow MAC \
             addresses or client ids (`sanwire id` prints them), or any"
        )),
        Some(_) => Some(format!(
            "{wire}: nobody is served there: no rule in `allow` is a MAC address, a client id or any (`sanwire id` prints the id of a \
             client)"
        )),
        None if rules.is_empty() && !has_clients => only_this_host(wire),
        None if is_served => None,
        None => Some(format!(
            "{wire}: nobody is served there: no rule in `allow` is an address or prefix of its family, a client id or any"
        )),
    }
}

fn unserved_portal(config: &ServeConfig, wire: &Wire) -> Option<String> {
    let (_, group) = wire.portal()?;
    let is_here = |target: &&TargetNodeConfig| target.group_tags.is_empty() || target.group_tags.contains(&group);
    let targets: Vec<&TargetNodeConfig> = config.targets.iter().filter(is_here).collect();
    if targets.is_empty() {
        return Some(format!("{wire}: no target is served there: no `portal-groups` has group {group}"));
    }
    let serves_somebody = |target: &&TargetNodeConfig| target.allow.rules().iter().any(|rule| serves(rule, wire));
    if targets.iter().any(serves_somebody) {
        return None;
    }
    if targets.iter().any(|target| target.allow.rules().is_empty()) {
        return only_this_host(wire);
    }
    Some(format!("{wire}: nobody is served there: no rule in `allow` is an address, a prefix, an iSCSI name or any"))
}

/// Without rules; said where others could be expected.
fn only_this_host(wire: &Wire) -> Option<String> {
    let is_loopback = wire.address().is_some_and(|address| address.ip().is_loopback());
    (!is_loopback).then(|| format!("{wire}: only clients on this host are served, as nothing is allowed: add `allow`"))
}

/// Whether somebody may be served on this wire by the rule.
fn serves(rule: &AllowRule, wire: &Wire) -> bool {
    let is_iscsi = wire.has_targets();
    match (rule, wire.address()) {
        (AllowRule::Any, _) => true,
        (AllowRule::Mac(_), address) => address.is_none(),
        (AllowRule::Client(_), _) => wire.is_for_clients(),
        (AllowRule::Initiator(_), _) => is_iscsi,
        (AllowRule::Prefix(_), None) => false,
        // IPv4 also comes to a socket of IPv6 that is bound to no address.
        (AllowRule::Prefix(prefix), Some(address)) => {
            prefix.is_ipv4() == address.is_ipv4() || (prefix.is_ipv4() && address.ip().is_unspecified())
        }
    }
}

/// What a rule would take to name somebody.
fn takes(rule: &AllowRule) -> &'static str {
    match rule {
        AllowRule::Any => "a wire",
        AllowRule::Mac(_) => "an hs-eth:, aoe: or hdsp: wire",
        AllowRule::Client(_) => "a wire of HyperSCSI or HDSP (hs-eth:, hs-ip: or hdsp:)",
        AllowRule::Initiator(_) => "an iscsi: wire",
        AllowRule::Prefix(prefix) if prefix.is_ipv4() => "a wire at an IPv4 address",
        AllowRule::Prefix(_) => "a wire at an IPv6 address",
    }
}

/// Rules of the server that name nobody on any of its wires.
fn idle_rules(config: &ServeConfig) -> impl Iterator<Item = String> {
    let idle = |rule: &&AllowRule| !config.wires.iter().any(|wire| serves(rule, wire));
    config.allow.rules().iter().filter(idle).map(|rule| {
        format!("allow: {rule} names nobody here, since it takes {}: correct it, or add the wire", takes(rule))
    })
}

/// The same of a target that has rules of its own.
fn idle_rules_of_target(target: &TargetNodeConfig) -> impl Iterator<Item = String> {
    let idle = |rule: &&AllowRule| matches!(rule, AllowRule::Mac(_) | AllowRule::Client(_));
    target.allow.rules().iter().filter(idle).map(|rule| {
        let name = &target.name;
        format!("target {name}: allow: {rule} names no iSCSI initiator: use an address, a prefix, an iSCSI name or any")
    })
}

/// Rules that change nothing beside others.
fn repeated(rules: &[AllowRule], place: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut lines = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        if !seen.insert(rule.to_string()) {
            lines.push(format!("{place}: {rule} stands there twice: once is enough"));
            continue;
        }
        let covers = |other: &(usize, &AllowRule)| other.0 != at && covers(other.1, rule);
        if let Some((_, other)) = rules.iter().enumerate().find(covers) {
            lines.push(format!("{place}: {rule} changes nothing, since {other} stands there too: remove one of them"));
        }
    }
    lines
}

fn covers(wide: &AllowRule, narrow: &AllowRule) -> bool {
    match (wide, narrow) {
        (_, AllowRule::Any) => false,
        (AllowRule::Any, _) => true,
        (AllowRule::Prefix(wide), AllowRule::Prefix(narrow)) => wide != narrow && wide.covers(narrow),
        _ => false,
    }
}

/// Clients that see nothing, or have patterns that no volume matches.
fn clients_volumes(config: &ServeConfig, client: &super::super::FileClient) -> Vec<String> {
    let client = client.config();
    let shown = if client.name.is_empty() { client.id.to_string() } else { client.name.clone() };
    if client.volumes.is_empty() {
        return vec![format!("client {shown}: it sees no volume, since its `volumes` is empty")];
    }
    let matches_none =
        |pattern: &&sanwire_server::VolumePattern| !config.volumes.iter().any(|volume| pattern.matches(&volume.name));
    let idle = client.volumes.iter().filter(matches_none);
    idle.map(|pattern| {
        format!("client {shown}: no volume is called {pattern}: correct its `volumes`, or add the volume")
    })
    .collect()
}
