//! iSCSI targets that nobody reaches, and what has no effect on them.

use std::collections::BTreeSet;

use sanwire_server::TargetNodeConfig;

use super::{ServeConfig, Written};

pub(super) fn warnings(config: &ServeConfig, written: &Written) -> Vec<String> {
    if !config.has_iscsi() {
        let targets = written.has_targets.then_some("[[target]]");
        let discovery = written.has_discovery.then_some("[discovery]");
        return targets
            .into_iter()
            .chain(discovery)
            .map(|table| {
                format!("{table} has no effect: no iscsi: wire is served; add one, like wire = [\"iscsi:0.0.0.0\"]")
            })
            .collect();
    }
    let groups: BTreeSet<u16> = {
        let of_targets = config.wires.iter().filter(|wire| wire.has_targets());
        of_targets.filter_map(|wire| Some(wire.portal()?.1)).collect()
    };
    let mut lines: Vec<String> = config.targets.iter().flat_map(|target| of_target(target, &groups)).collect();
    if config.targets.is_empty() {
        lines.push(no_targets(config));
    }
    if config.discovery.mutual.is_some() && config.discovery.users.is_empty() {
        lines.push(mutual_alone("[discovery]"));
    }
    lines
}

fn no_targets(config: &ServeConfig) -> String {
    if config.volumes.is_empty() {
        return "iSCSI has no target yet: no volume is served".into();
    }
    format!(
        "iSCSI has no target: it has no encryption, so volumes with security (here {}) get none of their own; write [[target]] for those that \
         are meant to be read in the clear, or leave the iscsi: wire out",
        config.security
    )
}

fn of_target(target: &TargetNodeConfig, groups: &BTreeSet<u16>) -> Vec<String> {
    let name = &target.name;
    let mut lines = Vec::new();
    let unknown: Vec<u16> = target.group_tags.iter().copied().filter(|tag| !groups.contains(tag)).collect();
    if !unknown.is_empty() {
        let reached =
            if unknown.len() == target.group_tags.len() { "nobody reaches it" } else { "it is not reached there" };
        let unknown: Vec<String> = unknown.iter().map(ToString::to_string).collect();
        lines.push(format!(
            "target {name}: no iscsi: wire is in portal group {}, so {reached}: correct `portal-groups`, or give a wire the group \
             (iscsi:ADDR,GROUP)",
            unknown.join(", ")
        ));
    }
    if target.redirect.is_some() && !target.units.is_empty() {
        lines.push(format!(
            "target {name}: its `lun` is never reached, since `redirect` sends every initiator elsewhere"
        ));
    }
    if target.authentication.mutual.is_some() && target.authentication.users.is_empty() {
        lines.push(mutual_alone(&format!("target {name}")));
    }
    lines
}

fn mutual_alone(place: &str) -> String {
    format!(
        "{place}: mutual-chap has no effect without chap: a target authenticates itself only to an initiator that has done so"
    )
}
