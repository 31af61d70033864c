//! Which volume is derived from which.

use std::collections::{BTreeMap, BTreeSet};

use sanwire_store::VolumeSpec;

use super::error::{DEPTH_MAX, DerivedError};

/// The volumes that there are, with their parents.
pub(crate) struct Lineage<'a>(BTreeMap<&'a str, Option<&'a str>>);

impl<'a> Lineage<'a> {
    pub(crate) fn of(specs: impl IntoIterator<Item = &'a VolumeSpec>) -> Self {
        Lineage(specs.into_iter().map(|spec| (&*spec.name, spec.parent())).collect())
    }

    /// How many volumes this one stands on; 0 for one that is derived from none.
    ///
    /// # Errors
    /// [`DerivedError`] when it cannot be opened for one of these.
    pub(crate) fn depth(&self, volume: &str) -> Result<usize, DerivedError> {
        let (mut at, mut path, mut seen) = (volume, vec![volume], BTreeSet::from([volume]));
        while let Some(parent) = self.0.get(at).copied().flatten() {
            if !self.0.contains_key(parent) {
                return Err(DerivedError::NoParent { parent: parent.to_owned() });
            }
            if !seen.insert(parent) {
                let circle = path.iter().skip_while(|name| **name != parent).chain([&parent]);
                return Err(DerivedError::Circle { circle: circle.copied().collect::<Vec<_>>().join(" from ") });
            }
            path.push(parent);
            at = parent;
        }
        match path.len() - 1 {
            depth if depth <= DEPTH_MAX => Ok(depth),
            depth => Err(DerivedError::TooDeep { parent: path[1].to_owned(), depth: depth - 1 }),
        }
    }

    /// On how many it stands one after the other, the last of which may be none of these; those of a circle: on more than any other.
    fn steps(&self, volume: &str) -> usize {
        let above = std::iter::successors(Some(volume), |at| self.0.get(at).copied().flatten());
        above.take(self.0.len() + 2).count()
    }

    /// # Errors
    /// The first volume that cannot be opened for those on which it stands, and why.
    pub(crate) fn check(&self) -> Result<(), (&'a str, DerivedError)> {
        self.0.keys().try_for_each(|volume| self.depth(volume).map(drop).map_err(|error| (*volume, error)))
    }
}

/// The places of these volumes in the order in which they can be opened: each after the one from which it is derived, otherwise as they are.
/// Those of a circle come last, so that all others are there when that is said.
pub(crate) fn opening_order<'a>(specs: impl IntoIterator<Item = &'a VolumeSpec>) -> Vec<usize> {
    let specs: Vec<&VolumeSpec> = specs.into_iter().collect();
    let mut order: Vec<usize> = (0..specs.len()).collect();
    if specs.iter().any(|spec| spec.parent().is_some()) {
        let lineage = Lineage::of(specs.iter().copied());
        order.sort_by_cached_key(|at| lineage.steps(&specs[*at].name));
    }
    order
}

/// Which volumes are derived from which, as they come and go.
#[derive(Clone, Default, Debug)]
pub(crate) struct Children(BTreeMap<String, BTreeSet<String>>);

impl Children {
    /// A volume is there now.
    pub(crate) fn put(&mut self, spec: &VolumeSpec) {
        if let Some(parent) = spec.parent() {
            self.0.entry(parent.to_owned()).or_default().insert(spec.name.to_string());
        }
    }

    /// A volume is gone.
    pub(crate) fn remove(&mut self, spec: &VolumeSpec) {
        let Some(parent) = spec.parent() else { return };
        if let Some(children) = self.0.get_mut(parent) {
            children.remove(&*spec.name);
            if children.is_empty() {
                self.0.remove(parent);
            }
        }
    }

    /// Those that are derived from a volume, and from these, and so on: each before the one from which it is derived.
    pub(crate) fn descendants<'a>(&'a self, volume: &'a str) -> Vec<String> {
        let mut found = Vec::new();
        self.collect(volume, &mut found, &mut BTreeSet::from([volume]));
        found
    }

    fn collect<'a>(&'a self, volume: &str, found: &mut Vec<String>, seen: &mut BTreeSet<&'a str>) {
        for child in self.0.get(volume).into_iter().flatten() {
            // Those that could not be opened may be written in a circle.
            if seen.insert(child) {
                self.collect(child, found, seen);
                found.push(child.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derived;

    /// Those that are derived may be used by anybody.
    fn specs(texts: &[&str]) -> Vec<VolumeSpec> {
        derived::register();
        let everybody = |text: &str| if text.contains("dvd:") { ",principal=any" } else { "" };
        texts.iter().map(|text| format!("{text}{}", everybody(text)).parse().unwrap()).collect()
    }

    fn checked(texts: &[&str]) -> Result<(), String> {
        Lineage::of(&specs(texts)).check().map_err(|(volume, error)| format!("{volume}: {error}"))
    }

    #[test]
    fn parents_come_before_their_children_whatever_the_order_is_in_which_they_are_written() {
        let specs = specs(&["c=dvd:b", "b=dvd:a", "x=ram:1M", "a=ram:1M", "lost=dvd:nobody", "y=ram:1M"]);
        let names: Vec<_> = opening_order(&specs).into_iter().map(|at| &*specs[at].name).collect();
        assert_eq!(names, ["x", "a", "y", "b", "lost", "c"]);
        // Where what they stand on is there already, it is not among them.
        let specs = self::specs(&["c=dvd:b", "round=dvd:about", "about=dvd:round", "b=dvd:a"]);
        let names: Vec<_> = opening_order(&specs).into_iter().map(|at| &*specs[at].name).collect();
        assert_eq!(names, ["b", "c", "round", "about"]);
    }

    #[test]
    fn what_is_derived_from_nobody_or_from_itself_is_refused() {
        assert_eq!(checked(&["a=ram:1M", "b=dvd:a", "c=dvd:a", "d=dvd:c"]), Ok(()));
        let refused = |texts: &[&str], part: &str| {
            let error = checked(texts).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        refused(&["a=ram:1M", "b=dvd:A"], "b: there is no volume called A, from which it is to be derived");
        refused(&["a=dvd:a"], "a: volumes would be derived from each other in a circle, a from a:");
        refused(
            &["a=dvd:b", "b=dvd:c", "c=dvd:b"],
            "a: volumes would be derived from each other in a circle, b from c from b:",
        );
    }

    /// As when a volume that was removed by ctl, and from which another one is derived, is configured as derived from that.
    #[test]
    fn what_stands_on_one_another_in_a_circle_is_told_and_ends() {
        let mut children = Children::default();
        specs(&["b=dvd:a", "a=dvd:b", "c=dvd:b", "x=dvd:x"]).iter().for_each(|spec| children.put(spec));
        assert_eq!(children.descendants("a"), ["c", "b"]);
        assert_eq!(children.descendants("b"), ["a", "c"]);
        assert!(children.descendants("x").is_empty());
    }

    #[test]
    fn eight_may_stand_on_a_volume_and_no_more() {
        let chain = |count: usize| -> Vec<String> {
            (0..=count)
                .map(|at| if at == 0 { "v0=ram:1M".to_owned() } else { format!("v{at}=dvd:v{}", at - 1) })
                .collect()
        };
        let checked = |count| checked(&chain(count).iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(checked(DEPTH_MAX), Ok(()));
        let error = checked(DEPTH_MAX + 3).unwrap_err();
        assert!(error.contains("v10: it would be derived from v9, which is itself derived 9 deep"), "{error}");
    }

    #[test]
    fn descendants_are_told_before_those_from_which_they_are_derived() {
        let specs = specs(&["a=ram:1M", "b=dvd:a", "c=dvd:b", "d=dvd:a"]);
        let mut children = Children::default();
        specs.iter().for_each(|spec| children.put(spec));
        assert_eq!(children.descendants("a"), ["c", "b", "d"]);
        assert_eq!(children.descendants("b"), ["c"]);
        children.remove(&specs[2]);
        assert!(children.descendants("b").is_empty());
    }
}
