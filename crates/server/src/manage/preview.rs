//! What a reload would do.

use super::difference::{self, Difference};
use super::slow::Step;
use super::wanted::{Configuration, Wanted};
use super::{Answer, Manager};
use crate::counting::User;

impl Manager {
    /// Tells what a reload would do, and does nothing.
    pub(super) fn compare(&self, resets: bool) -> Step {
        self.read_configuration(resets, move |manager, configured| {
            manager.wanted(configured.clone()).config.terms().check()?;
            let wanted = configured.clone();
            let find = move |manager: &Manager, users: &[User]| manager.taken_by(&wanted, users);
            Ok(Step::seen_twice(manager, find, move |manager, taken| {
                Ok(Step::Done(Answer::Changed(manager.would(configured, taken))))
            }))
        })
    }

    fn is_longer_than(&self, volume: &str, size_bytes: u64) -> bool {
        self.find(volume).is_some_and(|(_, unit)| unit.store().geometry().length_bytes > size_bytes)
    }

    /// What this configuration would change, a line for each thing.
    fn would(&self, configured: Configuration, taken: Vec<String>) -> Vec<String> {
        let resets = configured.resets;
        let Wanted { config: wanted, missing, notes, .. } = self.wanted(configured);
        let mut difference = Difference::between(self.volumes.values(), &wanted.volumes);
        let shorter = difference.resized.extract_if(.., |(name, _, size_bytes)| self.is_longer_than(name, *size_bytes));
        let shorter: Vec<String> = shorter.map(|(name, ..)| name).collect();
        let stay = difference.kept.iter().map(|spec| spec.name.to_string()).chain(shorter.iter().cloned()).collect();
        let exports = difference::of_exports(&self.target.exports(), &wanted.exports);
        let mut lines: Vec<String> = difference.would().collect();
        lines.extend(shorter.into_iter().map(|name| {
            format!("volume {name} would stay as long as it is: a volume is never made shorter; remove and add it")
        }));
        lines.extend(missing.iter().map(|volume| format!("volume {} would be sought again", volume.spec.name)));
        lines.extend(exports.into_iter().map(|line| format!("would be: {line}")));
        lines.extend(notes);
        if resets {
            let renumbered = self.renumbered(&wanted.volumes);
            lines.extend(renumbered.map(|(lun, name)| format!("volume {name} would be logical unit {lun}")));
            lines.extend(self.would_forget(&stay));
        }
        lines.extend(taken.into_iter().map(|line| format!("{line}: a reload is refused without --force")));
        lines
    }
}
