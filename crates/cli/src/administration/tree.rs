//! All of a server on one screen: what is served, as what, and to whom.

use sanwire_core::Size;
use sanwire_server::{GroupStatus, SessionStatus, Status};

use super::sessions::{client_of, volumes_of};
use super::tables::state_name;

/// One line, and those below it.
struct Node {
    text: String,
    below: Vec<Node>,
}

impl Node {
    fn leaf(text: String) -> Node {
        Node { text, below: Vec::new() }
    }

    fn write(&self, text: &mut String, before: &str) {
        for (at, node) in self.below.iter().enumerate() {
            let is_last = at + 1 == self.below.len();
            let (branch, next) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            text.push_str(&format!("{before}{branch}{}\n", node.text));
            node.write(text, &format!("{before}{next}"));
        }
    }
}

/// Targets with their units, groups and sessions, and the volumes.
pub(super) fn show_tree(status: &Status, sessions: &[SessionStatus]) -> String {
    let mut below = vec![volumes(status)];
    if status.wires.iter().any(|wire| wire.starts_with("hs-")) {
        let units = status.volumes.iter().map(|volume| Node::leaf(format!("LUN {}  {}", volume.lun, volume.name)));
        below.push(target("HyperSCSI", units.collect(), &status.groups, of_target(sessions, None)));
    }
    for one in &status.targets {
        let units = one.units.iter().map(|(lun, volume)| Node::leaf(format!("LUN {lun}  {volume}")));
        below.push(target(&one.name, units.collect(), &one.groups, of_target(sessions, Some(&one.name))));
    }
    let mut text = format!("{} on {}\n", status.name, status.wires.join(", "));
    Node { text: String::new(), below }.write(&mut text, "");
    text
}

fn volumes(status: &Status) -> Node {
    let volume = |volume: &sanwire_server::VolumeStatus| {
        let used = volume.used_bytes.map(|bytes| format!(", {} used", Size(bytes)));
        let mode = if volume.read_only { ", read-only" } else { "" };
        let waiting = (volume.waiting > 0).then(|| format!(", {} commands wait for it", volume.waiting));
        let (used, waiting) = (used.unwrap_or_default(), waiting.unwrap_or_default());
        Node::leaf(format!("{}  {}{used}{mode}{waiting}  {}", volume.name, Size(volume.size_bytes), volume.store))
    };
    let missing =
        status.missing.iter().map(|volume| Node::leaf(format!("{}  not served: {}", volume.name, volume.reason)));
    let below: Vec<Node> = status.volumes.iter().map(volume).chain(missing).collect();
    Node { text: format!("volumes: {}", below.len()), below }
}

fn of_target<'a>(sessions: &'a [SessionStatus], target: Option<&'a str>) -> Vec<&'a SessionStatus> {
    sessions.iter().filter(|session| session.target.as_deref() == target).collect()
}

fn target(name: &str, units: Vec<Node>, groups: &[GroupStatus], sessions: Vec<&SessionStatus>) -> Node {
    let groups =
        groups.iter().map(|group| Node::leaf(format!("port group {}  {}", group.group, state_name(group.state))));
    let session = |session: &&SessionStatus| {
        let uses = if session.volumes == 0 { "nothing yet".to_owned() } else { volumes_of(session) };
        let paused = if session.paused { ", paused" } else { "" };
        let (client, address) = (client_of(session), &session.address);
        Node::leaf(format!("session {}  {client} at {address}, {}{paused}: {uses}", session.id, session.security))
    };
    let below = units.into_iter().chain(groups).chain(sessions.iter().map(session)).collect();
    Node { text: name.to_owned(), below }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_their_units_groups_and_sessions_below_them() {
        let status = serde_json::json!({
            "name": "box", "wires": ["hs-ip:127.0.0.1:5674", "iscsi:127.0.0.1:3260"],
            "volumes": [{"name": "disk0", "origin": "file", "lun": 0, "size_bytes": 1 << 30, "block_bytes": 512,
                "read_only": false, "security": "hash", "store": "ram:1G", "used_bytes": 1 << 20}],
            "targets": [{"name": "iqn.x:disk0", "units": [[3, "disk0"]], "groups": [{"group": 1, "state": "standby"}]}],
            "groups": [{"group": 1, "state": null}],
        });
        let session = |id: &str, target: Option<&str>| {
            serde_json::json!({"id": id, "wire": "iscsi", "client": "host", "port": "p", "address": "10.0.0.2:7", "target": target,
                "connections": 1, "volumes": 1, "volume_names": ["disk0"], "since": "x", "security": "none", "paused": true, "shard": 0})
        };
        let sessions = serde_json::json!([session("7", Some("iqn.x:disk0")), session("8", None)]);
        let tree =
            show_tree(&serde_json::from_value(status).unwrap(), &serde_json::from_value::<Vec<_>>(sessions).unwrap());
        let expected = "box on hs-ip:127.0.0.1:5674, iscsi:127.0.0.1:3260\n\
            ├─ volumes: 1\n\
            │  └─ disk0  1 GiB, 1 MiB used  ram:1G\n\
            ├─ HyperSCSI\n\
            │  ├─ LUN 0  disk0\n\
            │  ├─ port group 1  transitioning\n\
            │  └─ session 8  host at 10.0.0.2:7, none, paused: disk0\n\
            └─ iqn.x:disk0\n   \
               ├─ LUN 3  disk0\n   \
               ├─ port group 1  standby\n   \
               └─ session 7  host at 10.0.0.2:7, none, paused: disk0\n";
        assert_eq!(tree, expected);
    }
}
