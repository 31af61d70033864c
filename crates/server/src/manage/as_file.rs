//! What is served, as the tables of a configuration file: who puts them there has it served so without what `ctl` has changed.

use std::collections::{BTreeMap, BTreeSet};

use sanwire_core::text::printable;
use sanwire_scsi::IscsiName;
use sanwire_store::VolumeSpec;

use super::{Answer, Manager};
use crate::allow::AllowList;
use crate::config::VolumeConfig;
use crate::front::hyperscsi::clients::ClientConfig;
use crate::front::iscsi::target_node::TargetNodeConfig;
use crate::kept;
use crate::wire::Wire;

/// Stands where a file with a secret is to be named: no server starts with it as it is.
const SECRET_FILE: &str = "FILE";

/// Stands where no target is served, and volumes are.
const NO_TARGET: &str = "WARNING: no volume has an iSCSI target now, and no file can say that. Where it has no [[target]], each volume has \
                         one of its\nown, for whom `allow` names: leave the iscsi: wires out, or write a [[target]] for each volume that is to \
                         have one.";

/// One table, or a comment.
#[derive(Default)]
struct Text(String);

impl Text {
    fn table(name: &str) -> Text {
        Text(format!("[[{name}]]\n"))
    }

    fn comment(text: impl AsRef<str>) -> Text {
        let mut comment = Text::default();
        comment.note(text);
        comment
    }

    fn note(&mut self, text: impl AsRef<str>) {
        text.as_ref().lines().for_each(|line| self.0.push_str(&format!("# {}\n", printable(line))));
    }

    fn line(&mut self, key: &str, value: impl AsRef<str>) {
        self.0.push_str(&format!("{key} = {}\n", value.as_ref()));
    }

    fn flag(&mut self, key: &str, is_set: bool) {
        if is_set {
            self.line(key, "true");
        }
    }

    fn text(&mut self, key: &str, value: &str) {
        self.line(key, quoted(value));
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    // What JSON escapes TOML does alike, and one more.
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

fn array(texts: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let texts: Vec<String> = texts.into_iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", texts.join(", "))
}

impl Manager {
    /// The tables that say what is served now, with what should be and is not.
    pub(super) fn configuration_file(&self) -> Answer {
        let volumes = self.volumes.values();
        let mut by_number: Vec<&VolumeConfig> = volumes.collect();
        by_number.sort_by_key(|volume| volume.lun);
        let mut texts = vec![Text::comment(
            "What is served now. Put it in the place of all [[volume]], [[target]] and [[client]] of the configuration file,\nand \
             `sanwire ctl reload --reset` forgets what ctl has changed.",
        )];
        texts.extend((0..).zip(&by_number).map(|(place, volume)| table_of_volume(volume, place)));
        for missing in &self.kept.missing {
            let mut text = Text::comment(format!("It is not served: {}", missing.reason));
            text.0.push_str(&table_of_volume(&missing.volume, missing.volume.lun.number()).0);
            texts.push(text);
        }
        texts.extend(self.texts_of_targets());
        let clients = self.target.clients();
        texts.extend(clients.list().iter().map(table_of_client));
        let removed = clients.changed().into_iter().filter(|(_, change)| change.now.is_none());
        texts.extend(removed.map(|(id, _)| {
            Text::comment(format!(
                "Client {id} was removed by ctl, and is refused whatever `allow` says: no file can say that of it."
            ))
        }));
        Answer::ConfigurationFile(texts.into_iter().map(|Text(text)| text).collect())
    }

    /// The volumes that are served, and those that should be.
    fn wanted_volumes(&self) -> impl Iterator<Item = &VolumeConfig> {
        self.volumes.values().chain(self.kept.missing.iter().map(|missing| &missing.volume))
    }

    /// The targets with the units of volumes that are not served now, which would be lost by the file otherwise.
    fn texts_of_targets(&self) -> Vec<Text> {
        let (merged, _) = kept::merge(&self.kept.configured, &self.kept.changes());
        let known: BTreeSet<&str> = self.wanted_volumes().map(|volume| &*volume.spec.name).collect();
        let mut exports = merged.exports;
        exports.iter_mut().for_each(|target| target.units.retain(|_, volume| known.contains(volume.as_str())));
        exports.retain(|target| !target.units.is_empty() || target.stays_empty());
        if exports.is_empty() && (known.is_empty() || !merged.wires.iter().any(Wire::has_targets)) {
            return Vec::new();
        }
        if self.are_made(&exports) {
            return vec![Text::comment("Each volume has an iSCSI target of its own, as where the file names none.")];
        }
        let is_writable = |target: &TargetNodeConfig| !target.units.is_empty() || target.redirect.is_some();
        let mut texts = Vec::new();
        if !exports.iter().any(is_writable) {
            texts.push(Text::comment(NO_TARGET));
        }
        texts.extend(exports.iter().map(|target| {
            let table = self.table_of_target(target);
            if is_writable(target) { table } else { without_units(&target.name, &table) }
        }));
        texts
    }

    /// Whether these are the targets that there are where none are configured.
    fn are_made(&self, exports: &[TargetNodeConfig]) -> bool {
        let made = self.wanted_volumes().filter_map(|volume| {
            TargetNodeConfig::of_volume(&volume.spec.name, self.allow.clone())
                .ok()
                .map(|target| (target.name.clone(), target))
        });
        let made: BTreeMap<_, _> = made.collect();
        made.len() == exports.len() && exports.iter().all(|target| made.get(&target.name) == Some(target))
    }

    fn table_of_target(&self, target: &TargetNodeConfig) -> Text {
        let TargetNodeConfig { name, alias, units, allow, requires_digests, group_tags, redirect, .. } = target;
        let mut text = Text::table("target");
        text.text("name", name.as_str());
        if !alias.is_empty() {
            text.text("alias", alias);
        }
        units.iter().for_each(|(lun, volume)| text.text(&format!("lun.{}", lun.number()), volume));
        if *allow != self.allow {
            text.line("allow", rules(allow));
        }
        chap_of(&mut text, target);
        text.flag("require-digests", *requires_digests);
        if !group_tags.is_empty() {
            let tags: Vec<String> = group_tags.iter().map(u16::to_string).collect();
            text.line("portal-groups", format!("[{}]", tags.join(", ")));
        }
        if let Some((address, is_for_good)) = redirect {
            text.text("redirect", address);
            text.flag("redirect-for-good", *is_for_good);
        }
        text
    }
}

/// What a target without volumes would be in the file.
fn without_units(name: &IscsiName, table: &Text) -> Text {
    let mut text = Text::comment(format!(
        "The iSCSI target {name} has no volumes, which no file can say: after the reset, sanwire ctl add-target {name}"
    ));
    text.note(&table.0);
    text
}

fn rules(allow: &AllowList) -> String {
    array(allow.rules().iter().map(ToString::to_string))
}

fn chap_of(text: &mut Text, target: &TargetNodeConfig) {
    let known = &target.authentication;
    let credential = |name: &str| format!("{{ user = {}, secret-file = {} }}", quoted(name), quoted(SECRET_FILE));
    if !known.users.is_empty() || known.mutual.is_some() {
        text.note(format!("No secret is told: name the files that have them in the place of {SECRET_FILE}."));
    }
    if !known.users.is_empty() || target.is_meant_open {
        let users: Vec<String> = known.users.iter().map(|user| credential(&user.name)).collect();
        text.line("chap", format!("[{}]", users.join(", ")));
    }
    if let Some(mutual) = &known.mutual {
        text.line("mutual-chap", credential(&mutual.name));
    }
    if !known.algorithms.is_empty() {
        text.line("chap-algorithms", array(known.algorithms.iter().map(ToString::to_string)));
    }
}

/// A volume; `place`: the number that it has where it stands in the file.
fn table_of_volume(volume: &VolumeConfig, place: u16) -> Text {
    let (spec, number) = (&volume.spec, volume.lun.number());
    let mut text = Text::table("volume");
    if number != place {
        text.note(format!(
            "Logical unit {number} over HyperSCSI, which no file can say: sanwire ctl map-volume {} --lun {number}",
            spec.name
        ));
    }
    text.text("name", &spec.name);
    text.text("store", spec.store_text());
    for (key, values) in VolumeSpec::written_keys(spec) {
        match values {
            [value] if value == "true" || value == "false" => text.line(key, value),
            [value] => text.text(key, value),
            values => text.line(key, array(values)),
        }
    }
    text
}

fn table_of_client(client: &ClientConfig) -> Text {
    let ClientConfig {
        id,
        name,
        psk,
        manage,
        read_only,
        lock_media,
        volumes,
        weight,
        cap_bytes_per_second,
        window_packets,
        compression,
        transfer_max_bytes,
        priority,
    } = client;
    let mut text = Text::table("client");
    text.text("id", &id.to_string());
    if !name.is_empty() {
        text.text("name", name);
    }
    if psk.is_some() {
        text.note(format!(
            "Its secret is not told: name a file that has it in the place of {SECRET_FILE}, or password-file."
        ));
        text.text("secret-file", SECRET_FILE);
    }
    text.flag("manage", *manage);
    text.flag("read-only", *read_only);
    text.flag("lock-media", *lock_media);
    let patterns: Vec<String> = volumes.iter().map(ToString::to_string).collect();
    if patterns != ["*"] {
        text.line("volumes", array(patterns));
    }
    if *weight != 1 {
        text.line("weight", weight.to_string());
    }
    if let Some(cap) = cap_bytes_per_second {
        text.text("cap", &cap.to_string());
    }
    if let Some(packets) = window_packets {
        text.line("window", packets.to_string());
    }
    if let Some(compression) = compression {
        text.text("compression", &compression.to_string());
    }
    if let Some(bytes) = transfer_max_bytes {
        text.text("max-transfer", &bytes.to_string());
    }
    if let Some(priority) = priority {
        text.line("priority", priority.to_string());
    }
    text
}
