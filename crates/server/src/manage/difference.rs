//! What a new configuration wants that the old one did not.

use std::collections::{BTreeMap, BTreeSet};

use sanwire_core::Size;
use sanwire_store::VolumeSpec;
use sanwire_store::kind::{Likeness, Place};

use crate::config::VolumeConfig;
use crate::front::iscsi::target_node::TargetNodeConfig;

/// Volumes that come, go and change, by their names.
#[derive(Default, Debug)]
pub(super) struct Difference {
    pub(super) added: Vec<VolumeConfig>,
    pub(super) removed: Vec<String>,
    /// How their packets are to be guarded differs, and at the most the size besides.
    pub(super) secured: Vec<VolumeSpec>,
    /// Whether their content is protected differs, and at the most the size and how they are guarded besides.
    pub(super) protected: Vec<(String, bool)>,
    /// Who owns them differs, and at the most the above besides.
    pub(super) owned: Vec<VolumeSpec>,
    /// Besides that only the size differs: the name, the new description, the new size.
    pub(super) resized: Vec<(String, VolumeSpec, u64)>,
    /// They are derived and were otherwise, or that from which they are derived was: a grant that was narrowed ends at once. They hold nothing
    /// of their own, so they can be derived anew.
    pub(super) derived_anew: Vec<VolumeConfig>,
    /// They differ in what cannot be changed while they are served.
    pub(super) kept: Vec<VolumeSpec>,
}

impl Difference {
    pub(super) fn between<'a>(before: impl IntoIterator<Item = &'a VolumeConfig>, after: &[VolumeConfig]) -> Self {
        let old = before.into_iter().map(|volume| (&*volume.spec.name, &volume.spec));
        let old: BTreeMap<&str, &VolumeSpec> = old.collect();
        let mut difference = Difference::default();
        let derived_anew = derived_anew(&old, after);
        for volume in after {
            let spec = &volume.spec;
            let name = spec.name.to_string();
            match old.get(&*name) {
                None => difference.added.push(volume.clone()),
                Some(_) if derived_anew.contains(&*name) => difference.derived_anew.push(volume.clone()),
                Some(old) if *old == spec => {}
                Some(old) => {
                    let alike = as_changeable(old, spec);
                    let secured = VolumeSpec::clone(old).with_security(spec.security);
                    let size_bytes = alike.differs_in_size(spec);
                    if alike != *spec && size_bytes.is_none() {
                        difference.kept.push(spec.clone());
                        continue;
                    }
                    if spec.protected != old.protected {
                        difference.protected.push((name.clone(), spec.protected));
                    }
                    if spec.owners != old.owners {
                        difference.owned.push(spec.clone());
                    }
                    if let Some(size_bytes) = size_bytes.filter(|_| alike != *spec) {
                        difference.resized.push((name, spec.clone(), size_bytes));
                    }
                    if secured.security != old.security {
                        difference.secured.push(secured);
                    }
                }
            }
        }
        let new: BTreeSet<&str> = after.iter().map(|volume| &*volume.spec.name).collect();
        difference.removed = old.keys().filter(|name| !new.contains(**name)).map(|name| (*name).to_owned()).collect();
        difference
    }
}

/// A volume as it was, but for what is changed while it is served.
fn as_changeable(old: &VolumeSpec, new: &VolumeSpec) -> VolumeSpec {
    old.clone().with_security(new.security).with_protected(new.protected).with_owners(new.owners.clone())
}

/// The volumes that were derived and are to be otherwise, and those that are derived from them.
fn derived_anew<'a>(old: &BTreeMap<&str, &VolumeSpec>, after: &'a [VolumeConfig]) -> BTreeSet<&'a str> {
    let mut anew = BTreeSet::new();
    if old.values().all(|spec| spec.parent().is_none()) {
        return anew;
    }
    loop {
        let before = anew.len();
        for VolumeConfig { spec, .. } in after {
            let Some(old) = old.get(&*spec.name).filter(|old| old.parent().is_some()) else { continue };
            let follows = spec.parent().is_some_and(|parent| anew.contains(parent));
            if follows || as_changeable(old, spec) != *spec {
                anew.insert(&*spec.name);
            }
        }
        if anew.len() == before {
            return anew;
        }
    }
}

impl Difference {
    /// The volumes that are not served any more, or not as they are.
    pub(super) fn going(&self) -> Vec<String> {
        let anew = self.derived_anew.iter().map(|volume| volume.spec.name.to_string());
        self.removed.iter().cloned().chain(anew).collect()
    }

    /// Takes out the volumes that come with the store of one that goes, as when it has another name: the store is closed first.
    pub(super) fn take_renamed<'a>(&mut self, before: impl Iterator<Item = &'a VolumeConfig>) -> Vec<VolumeConfig> {
        let removed: BTreeSet<&str> = self.removed.iter().map(String::as_str).collect();
        // What is alike is at one place.
        let mut gone = BTreeMap::<Place<'_>, Vec<&VolumeConfig>>::new();
        for volume in before.filter(|volume| removed.contains(&*volume.spec.name)) {
            gone.entry(volume.spec.store.backing.place()).or_default().push(volume);
        }
        gone.remove(&Place::Memory);
        let has_store = |volume: &mut VolumeConfig| {
            let store = &volume.spec.store.backing;
            let is_same = |other: &&VolumeConfig| store.compare(&*other.spec.store.backing) != Likeness::Other;
            gone.get(&store.place()).is_some_and(|there| there.iter().any(is_same))
        };
        self.added.extract_if(.., has_store).collect()
    }

    /// The volumes that differ.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        let added = self.added.iter().map(|volume| &*volume.spec.name);
        let resized = self.resized.iter().map(|(name, ..)| name.as_str());
        let kept = self.kept.iter().map(|spec| &*spec.name);
        let secured = self.secured.iter().map(|spec| &*spec.name);
        let protected = self.protected.iter().map(|(name, _)| name.as_str());
        let owned = self.owned.iter().map(|spec| &*spec.name);
        let removed = self.removed.iter().map(String::as_str);
        let anew = self.derived_anew.iter().map(|volume| &*volume.spec.name);
        added
            .chain(anew)
            .chain(owned)
            .chain(removed)
            .chain(resized)
            .chain(secured)
            .chain(protected)
            .chain(kept)
            .collect()
    }

    /// What would become of the volumes, one line for each that is not what it was.
    pub(super) fn would(&self) -> impl Iterator<Item = String> {
        let added = self.added.iter().map(|volume| format!("volume {} would be served", volume.spec.name));
        let removed = self.removed.iter().map(|name| format!("volume {name} would not be served any more"));
        let secured =
            self.secured.iter().map(|spec| format!("volume {} would have another protection level", spec.name));
        let resized = self.resized.iter().map(|(name, _, size)| format!("volume {name} would have {}", Size(*size)));
        let kept = self.kept.iter().map(|spec| format!("volume {} would stay as it is: remove and add it", spec.name));
        let protected = self.protected.iter().map(|(name, protected)| {
            let not_any_more = if *protected { "" } else { " not" };
            format!("volume {name} would{not_any_more} be protected")
        });
        let owned = self.owned.iter().map(|spec| format!("volume {} would have other owners", spec.name));
        let anew = self.derived_anew.iter().map(|volume| &volume.spec.name);
        let anew = anew.map(|name| format!("volume {name} would be revoked, and derived anew as it is configured now"));
        added.chain(removed).chain(anew).chain(owned).chain(secured).chain(protected).chain(resized).chain(kept)
    }
}

/// What has become of the targets, one line for each that is not what it was.
pub(super) fn of_exports(before: &[TargetNodeConfig], after: &[TargetNodeConfig]) -> Vec<String> {
    let [old, new] =
        [before, after].map(|exports| exports.iter().map(|export| (&export.name, export)).collect::<BTreeMap<_, _>>());
    let mut lines = Vec::new();
    for export in after {
        match old.get(&export.name) {
            None => lines.push(format!("target {} is there", export.name)),
            Some(old) if *old != export => lines.push(format!("target {} has changed", export.name)),
            Some(_) => {}
        }
    }
    let gone = before.iter().filter(|export| !new.contains_key(&export.name));
    lines.extend(gone.map(|export| format!("target {} is gone, and its sessions with it", export.name)));
    lines
}
