//! Changes that were added behind what a file keeps, a line for each: so one takes as long as it is, and not as long as all that differs.
//!
//! A line is `SUM EDIT`: the edit as JSON, which has no line breaks, and before it the FNV-1a hash (128 bits, 32 hexadecimal digits) of the sum
//! before this one (that of the content, for the first line) in 16 bytes, and of that JSON. So no line is taken that is changed, behind another
//! one than when it was written, or behind another content.

use std::io;

use super::file::shown;
use super::{Changes, Edit};
use crate::records::fnv1a_128;

/// Digits of a sum.
const DIGITS: usize = 32;

/// What is to be added behind what has this sum, and the sum of it.
///
/// # Errors
/// When it cannot be said in JSON.
pub(super) fn line(edit: &Edit, before: u128) -> io::Result<(Vec<u8>, u128)> {
    let json = serde_json::to_vec(edit)?;
    let sum = sum_behind(before, &json);
    let mut line = shown(sum).into_bytes();
    line.push(b' ');
    line.extend(json);
    line.push(b'\n');
    Ok((line, sum))
}

/// Makes the changes what they are with what was added behind them, whose sum is `before`. Whether all of that is whole: a last line that is
/// not is one that was being written when the system, or the server, came to its end. Nobody was told that it is kept, and it is left out.
///
/// # Errors
/// What is wrong with a line that is whole, or that others follow.
pub(super) fn apply(changes: &mut Changes, before: u128, added: &[u8]) -> Result<bool, String> {
    let (mut sum, mut end) = (before, 0);
    for (line, number) in added.split_inclusive(|byte| *byte == b'\n').zip(1..) {
        end += line.len();
        let Some((own, json)) = parsed(line, sum) else {
            let is_torn = end == added.len() && is_torn(line);
            return if is_torn {
                Ok(false)
            } else {
                Err(format!("change {number} behind its content is not as written"))
            };
        };
        let edit =
            serde_json::from_slice(json).map_err(|error| format!("change {number} behind its content: {error}"))?;
        changes.apply(edit);
        sum = own;
    }
    Ok(true)
}

/// Whether not all of a line was written: what a crash leaves of what is added to a file are the bytes that were to be there, and zeroes.
fn is_torn(line: &[u8]) -> bool {
    !line.ends_with(b"\n") || line.contains(&0)
}

/// The sum and the JSON of a line; `None` when it is not one that was written behind this sum.
fn parsed(line: &[u8], before: u128) -> Option<(u128, &[u8])> {
    let (written, json) = line.strip_suffix(b"\n")?.split_at_checked(DIGITS)?;
    let json = json.strip_prefix(b" ")?;
    let sum = sum_behind(before, json);
    (written == shown(sum).as_bytes()).then_some((sum, json))
}

fn sum_behind(before: u128, json: &[u8]) -> u128 {
    fnv1a_128(&[&before.to_be_bytes()[..], json].concat())
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::kept::{Changed, VolumeDefinition};

    /// Numbers by chance, the same each time.
    pub(in crate::kept) struct Chance(pub(in crate::kept) u64);

    impl Chance {
        pub(in crate::kept) fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % bound
        }

        /// A change of one of a few volumes, or of its number in a target.
        pub(in crate::kept) fn edit(&mut self) -> Edit {
            let (volume, target) =
                (format!("v{}", self.below(12)), format!("iqn.2026-11.org.example:t{}", self.below(3)));
            let (number, is_there) = (self.below(1000) as u16, self.below(3) > 0);
            match self.below(4) {
                0 | 1 => {
                    let spec = format!("{volume}=ram:{}K", number + 1).parse().unwrap();
                    let definition = VolumeDefinition { volume: spec, lun: number };
                    let change = Changed { configured: None, now: (self.below(4) > 0).then_some(definition) };
                    Edit { volumes: BTreeMap::from([(volume, is_there.then_some(change))]), ..Edit::default() }
                }
                2 => {
                    let mapping = is_there.then_some(Changed { configured: Some(7), now: Some(number) });
                    Edit { mappings: BTreeMap::from([((target, volume), mapping)]), ..Edit::default() }
                }
                _ => {
                    let alias = is_there.then(|| format!("alias {number} \"\n\u{e9}"));
                    Edit { targets: BTreeMap::from([(target, alias)]), ..Edit::default() }
                }
            }
        }
    }

    fn read(before: u128, added: &[u8]) -> Result<(Changes, bool), String> {
        let mut changes = Changes::default();
        apply(&mut changes, before, added).map(|is_whole| (changes, is_whole))
    }

    /// Ten thousand changes, and a crash in each of them: what is read is what every change has left that was whole.
    #[test]
    fn what_is_read_is_all_that_was_added_wherever_the_last_line_ends() {
        let (mut chance, mut model) = (Chance(1), Changes::default());
        // What stood there before, of which each round reads no more than what it adds.
        let (mut before, mut sum) = (Changes::default(), 5);
        for round in 0..1000 {
            let (mut added, first) = (Vec::new(), sum);
            for _ in 0..10 {
                let (edit, start) = (chance.edit(), added.len());
                let (line, own) = line(&edit, sum).unwrap();
                assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
                added.extend(&line);
                sum = own;
                let whole = |added: &[u8]| {
                    let mut read = before.clone();
                    apply(&mut read, first, added).map(|is_whole| (read, is_whole))
                };
                // In the first rounds at each byte, later at one.
                let all = 1..line.len();
                let cuts = if round < 5 { all.collect() } else { vec![1 + chance.below(line.len() - 1)] };
                for cut in cuts {
                    let (mut at_end, mut in_between) = (added.clone(), added.clone());
                    // The file was longer already, and not all of its content written.
                    at_end[start + cut..].fill(0);
                    in_between[start + cut - 1..][..1].fill(0);
                    for torn in [&added[..start + cut], &at_end[..], &in_between[..]] {
                        assert_eq!(whole(torn).unwrap(), (model.clone(), false), "{round} {cut}");
                    }
                }
                model.apply(edit);
                assert_eq!(whole(&added).unwrap(), (model.clone(), true), "{round}");
            }
            before = model.clone();
        }
        assert!(model.volumes.len() > 5 && !model.mappings.is_empty(), "{model:?}");
    }

    #[test]
    fn a_damaged_line_is_refused() {
        let mut chance = Chance(2);
        let (mut added, mut ends, mut sum) = (Vec::new(), vec![0], 9);
        for _ in 0..4 {
            let (line, own) = line(&chance.edit(), sum).unwrap();
            added.extend(line);
            ends.push(added.len());
            sum = own;
        }
        let whole = read(9, &added).unwrap();
        assert!(whole.1);
        for at in 0..added.len() {
            let mut bad = added.clone();
            bad[at] ^= 1;
            match read(9, &bad) {
                // Its last byte is as if it were not there.
                Ok((_, is_whole)) => assert!(!is_whole && at == added.len() - 1, "{at}"),
                Err(reason) => assert!(reason.contains("is not as written"), "{at}: {reason}"),
            }
        }
        let without_second = [&added[..ends[1]], &added[ends[2]..]].concat();
        let twice = [&added[..ends[2]], &added[ends[1]..]].concat();
        let turned =
            [&added[..ends[1]], &added[ends[2]..ends[3]], &added[ends[1]..ends[2]], &added[ends[3]..]].concat();
        for other in [without_second, twice, turned] {
            assert!(read(9, &other).is_err());
        }
        assert!(read(8, &added).is_err(), "it stands behind another content");
        assert_eq!(read(9, &[]).unwrap(), (Changes::default(), true));
    }
}
