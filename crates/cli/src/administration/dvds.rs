//! Volumes that are derived from others, for people.

use sanwire_core::Size;
use sanwire_server::{DerivedStatus, DvdStatus, PrincipalStatus, ProgramStatus, RegionStatus, VolumeStatus};

use crate::output;

/// Regions that are told of one volume among others.
const REGIONS_SHOWN: usize = 3;

/// The list of them.
pub(super) fn show_dvds(volumes: &[VolumeStatus]) -> String {
    let rows: Vec<_> = volumes
        .iter()
        .filter_map(|volume| {
            let derived = volume.derived.as_ref()?;
            let mode = if volume.read_only { "ro" } else { "rw" };
            let has_size = volume.missing.is_none() || volume.size_bytes > 0;
            Some([
                volume.name.clone(),
                derived.parent.clone(),
                if has_size { Size(volume.size_bytes).to_string() } else { "-".to_owned() },
                if volume.missing.is_none() { mode } else { "missing" }.to_owned(),
                shortened(&derived.regions),
                derived.operations.join(","),
                derived.principals.join(","),
                left(derived).unwrap_or_else(|| "-".to_owned()),
            ])
        })
        .collect();
    let head = ["VOLUME", "DERIVED FROM", "SIZE", "MODE", "REGIONS", "OPERATIONS", "PRINCIPALS", "TIME LEFT"];
    let missing = volumes.iter().filter_map(|volume| Some((&volume.name, volume.missing.as_ref()?)));
    let missing: Vec<String> =
        missing.map(|(name, reason)| format!("volume {name} is not served: {reason}\n")).collect();
    let gap = if missing.is_empty() { "" } else { "\n" };
    format!("{}{gap}{}", output::table(head, &rows), missing.concat())
}

/// One of them, with what was counted.
pub(super) fn show_dvd(dvd: &DvdStatus) -> String {
    let DvdStatus { volume, used_by, program: judge, not_admitted } = dvd;
    let Some(derived) = &volume.derived else { return String::new() };
    let mode = if volume.read_only { ", read-only" } else { "" };
    let mut text = format!("{}, derived from {}: {}{mode}\n", volume.name, derived.parent, Size(volume.size_bytes));
    let mut line = |what: &str, value: String| text.push_str(&format!("  {what:<12}{value}\n"));
    volume.missing.iter().for_each(|reason| line("not served", reason.clone()));
    line("regions", derived.regions.iter().map(region).collect::<Vec<_>>().join(" "));
    line("operations", derived.operations.join(", "));
    line("principals", derived.principals.join(", "));
    if let (Some(until), Some(left)) = (&derived.until, left(derived)) {
        line("until", format!("{until}, in {left}"));
    }
    if let Some(program) = &derived.program {
        line("program", program.clone());
    }
    if !volume.owners.is_empty() {
        line("owners", volume.owners.join(", "));
    }
    line("security", volume.security.clone());
    let rows: Vec<_> = used_by.iter().map(row).collect();
    let head = ["USED BY", "COMMANDS", "READ", "WRITTEN", "BEYOND IT", "NOT ALLOWED", "BY THE PROGRAM", "TOO LATE"];
    text.push('\n');
    text.push_str(&output::table(head, &rows));
    if let Some(judge) = judge {
        let ProgramStatus { calls, allowed, refused, redirected, rewritten, deferred, failed, fuel, .. } = judge;
        text.push_str(&format!(
            "\nthe program was asked {calls} times: {allowed} allowed, {refused} refused, {redirected} redirected, {rewritten} rewritten, \
             {deferred} deferred; it failed {failed} times, and took {fuel} units of fuel\n"
        ));
        text.extend(judge.last_failure.iter().map(|failure| format!("it failed last: {failure}\n")));
    }
    if *not_admitted > 0 {
        text.push_str(&format!("\n{not_admitted} times somebody asked who is no principal\n"));
    }
    text
}

fn row(used: &PrincipalStatus) -> [String; 8] {
    [
        used.principal.clone().unwrap_or_else(|| "all others".to_owned()),
        used.commands.to_string(),
        Size(used.read_bytes).to_string(),
        Size(used.written_bytes).to_string(),
        used.refused_region.to_string(),
        used.refused_operation.to_string(),
        used.refused_program.to_string(),
        used.refused_expired.to_string(),
    ]
}

fn region(region: &RegionStatus) -> String {
    format!("{}+{}", exact(region.offset_bytes), exact(region.length_bytes))
}

/// As regions are written: nothing is lost by it.
fn exact(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

fn shortened(regions: &[RegionStatus]) -> String {
    let shown: Vec<String> = regions.iter().take(REGIONS_SHOWN).map(region).collect();
    match regions.len().saturating_sub(REGIONS_SHOWN) {
        0 => shown.join(" "),
        others => format!("{} and {others} more", shown.join(" ")),
    }
}

/// For people, to the second.
fn left(derived: &DerivedStatus) -> Option<String> {
    let left = std::time::Duration::from_secs(derived.seconds_left?);
    Some(humantime::format_duration(left).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> VolumeStatus {
        serde_json::from_value(serde_json::json!({
            "name": "cam", "origin": "management", "lun": 3, "size_bytes": 10 << 20, "block_bytes": 512, "read_only": false,
            "security": "none", "owners": ["10.0.0.1"],
            "derived": {
                "parent": "disk", "operations": ["read", "8Fh"], "principals": ["any"], "until": "2027-01-31T18:00:00.000Z", "seconds_left": 7200,
                "regions": [{"offset_bytes": 16 << 20, "length_bytes": 8 << 20}, {"offset_bytes": 0, "length_bytes": 512}, {"offset_bytes": 1536, "length_bytes": 1 << 20}, {"offset_bytes": 1 << 30, "length_bytes": 1024}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn regions_are_told_as_they_are_written() {
        let table = show_dvds(&[volume()]);
        assert!(table.contains("16M+8M 0+512 1536+1M and 1 more  read,8Fh    any         2h"), "{table}");
    }

    #[test]
    fn one_is_told_with_what_was_counted() {
        let used = PrincipalStatus {
            principal: Some("10.0.0.7".into()),
            commands: 5,
            read_bytes: 4096,
            written_bytes: 0,
            refused_region: 0,
            refused_operation: 2,
            refused_program: 0,
            refused_expired: 0,
        };
        let others = PrincipalStatus { principal: None, commands: 1, ..used.clone() };
        let program = ProgramStatus {
            calls: 9,
            allowed: 7,
            refused: 1,
            redirected: 0,
            rewritten: 0,
            deferred: 0,
            failed: 1,
            last_failure: Some("it ran out of fuel".into()),
            fuel: 1234,
        };
        let dvd = DvdStatus { volume: volume(), used_by: vec![used, others], program: Some(program), not_admitted: 4 };
        let text = show_dvd(&dvd);
        for part in [
            "cam, derived from disk: 10 MiB\n",
            "  regions     16M+8M 0+512 1536+1M 1G+1K\n",
            "  until       2027-01-31T18:00:00.000Z, in 2h\n",
            "  owners      10.0.0.1\n",
            "10.0.0.7    5         4 KiB  0 B      0          2            0               0\n",
            "all others  1",
            "asked 9 times: 7 allowed, 1 refused",
            "it failed last: it ran out of fuel\n",
            "4 times somebody asked who is no principal\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
