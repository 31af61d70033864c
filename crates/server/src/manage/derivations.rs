//! What the manager knows of all volumes together: which are derived from which, and who may derive such.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use sanwire_store::VolumeSpec;

use super::Manager;
use crate::derived::{Children, DEPTH_MAX, DerivedError, Owners, PrincipalRule, owners};

/// Which volumes are derived from which, and who owns which.
pub(super) struct Derivations {
    children: Children,
    owners: BTreeMap<String, Vec<PrincipalRule>>,
    /// For those who only ask whether somebody owns anything at all.
    shared: Arc<Owners>,
}

impl Derivations {
    /// Those of no volume yet.
    pub(super) fn new(shared: Arc<Owners>) -> Self {
        Derivations { children: Children::default(), owners: BTreeMap::new(), shared }
    }

    /// Those of these volumes.
    pub(super) fn of<'a>(specs: impl IntoIterator<Item = &'a VolumeSpec>, shared: Arc<Owners>) -> Self {
        let mut derivations = Derivations::new(shared);
        specs.into_iter().for_each(|spec| derivations.note(spec));
        derivations.share();
        derivations
    }

    /// A volume is there, or is otherwise than it was.
    pub(super) fn put(&mut self, spec: &VolumeSpec) {
        let had_owners = self.owners.contains_key(&*spec.name);
        self.note(spec);
        if had_owners || !spec.owners.is_empty() {
            self.share();
        }
    }

    fn note(&mut self, spec: &VolumeSpec) {
        self.children.put(spec);
        // They were checked before the volume came here.
        match owners(spec).unwrap_or_default() {
            owners if owners.is_empty() => drop(self.owners.remove(&*spec.name)),
            owners => drop(self.owners.insert(spec.name.to_string(), owners)),
        }
    }

    /// A volume is gone.
    pub(super) fn remove(&mut self, spec: &VolumeSpec) {
        self.children.remove(spec);
        if self.owners.remove(&*spec.name).is_some() {
            self.share();
        }
    }

    fn share(&self) {
        self.shared.set(self.owners.values().flatten().cloned().collect());
    }

    pub(super) fn owners_of(&self, volume: &str) -> &[PrincipalRule] {
        self.owners.get(volume).map_or(&[], Vec::as_slice)
    }

    pub(super) fn descendants(&self, volume: &str) -> Vec<String> {
        self.children.descendants(volume)
    }
}

impl Manager {
    /// The volumes that are derived from one, served or not, each before its parent.
    pub(super) fn derived_from(&self, volume: &str) -> Vec<String> {
        self.children().descendants(volume)
    }

    /// Which volumes are derived from which, served or not.
    pub(super) fn children(&self) -> Cow<'_, Children> {
        let mut children = Cow::Borrowed(&self.derivations.children);
        let missing = self.kept.missing.iter().map(|missing| &missing.volume.spec);
        missing.filter(|spec| spec.parent().is_some()).for_each(|spec| children.to_mut().put(spec));
        children
    }

    /// On which volumes one stands, the nearest first; a volume that is not served ends the list.
    pub(super) fn ancestors(&self, volume: &str) -> Vec<String> {
        let parent = |name: &String| self.spec_of(name)?.parent().map(str::to_owned);
        let first = self.spec_of(volume).and_then(VolumeSpec::parent).map(str::to_owned);
        // There are no circles among volumes that are served; what is missing may be written in any way.
        std::iter::successors(first, parent).take(DEPTH_MAX + 1).collect()
    }

    /// What a volume is that is served, or should be.
    pub(super) fn spec_of(&self, name: &str) -> Option<&VolumeSpec> {
        let missing =
            || self.kept.missing.iter().map(|missing| &missing.volume).find(|volume| *volume.spec.name == *name);
        self.volumes.get(name).or_else(missing).map(|volume| &volume.spec)
    }

    /// Whether a volume can be derived so while others are served.
    ///
    /// # Errors
    /// [`DerivedError`], as for volumes of the configuration.
    pub(super) fn check_derived(&self, spec: &VolumeSpec) -> Result<VolumeSpec, DerivedError> {
        owners(spec)?;
        let Some(parent) = spec.parent() else { return Ok(spec.clone()) };
        let above = self.volumes.get(parent).ok_or_else(|| DerivedError::NoParent { parent: parent.to_owned() })?;
        let depth = self.ancestors(parent).len();
        if depth >= DEPTH_MAX {
            return Err(DerivedError::TooDeep { parent: parent.to_owned(), depth });
        }
        self.check_end(spec)?;
        let least = above.spec.security.unwrap_or(self.protection);
        match spec.security {
            Some(level) if level < least => {
                Err(DerivedError::Level { level, parent: parent.to_owned(), parent_level: least })
            }
            None if above.spec.security.is_some() => Ok(spec.clone().with_security(Some(least))),
            _ => Ok(spec.clone()),
        }
    }
}
