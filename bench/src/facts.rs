//! The machine and the programs that the numbers belong to.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::link::call;
use crate::servers::version;

/// Whose versions matter.
const PACKAGES: [&str; 6] = ["vblade", "tgt", "libiscsi-bin", "fio", "nfs-ganesha", "libnfs-utils"];

/// Facts for the results file.
pub(crate) fn machine() -> Value {
    let cpu_info = read("/proc/cpuinfo");
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    json!({
        "cpu": field(&cpu_info, "model name"),
        "cpu_family_model": format!("{}/{}", field(&cpu_info, "cpu family"), field(&cpu_info, "model")),
        "cores": cores(),
        "governor": if governor.is_empty() { "none".into() } else { governor },
        "kernel": read("/proc/sys/kernel/osrelease"),
        "is_virtual": field(&cpu_info, "flags").split(' ').any(|flag| flag == "hypervisor"),
        "memory": field(&read("/proc/meminfo"), "MemTotal"),
        "load_average": load_average(),
        "revision": call("git", &["describe", "--always", "--dirty"]).unwrap_or_default().trim(),
        "packages": Value::Object(PACKAGES.map(|package| (package.to_owned(), version(package).into())).into_iter().collect()),
    })
}

/// What else the machine does.
pub(crate) fn load_average() -> String {
    read("/proc/loadavg")
}

/// Processors that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Today, for the file's name, and the seconds since 1970.
pub(crate) fn now() -> (String, u64) {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    let minutes = seconds % 86_400 / 60;
    (format!("{year:04}-{month:02}-{day:02}T{:02}{:02}", minutes / 60, minutes % 60), seconds)
}

/// The machine in a few letters that a file's name may have.
pub(crate) fn slug(machine: &Value) -> String {
    let text = format!(
        "{}-{}c-{}",
        machine["cpu"].as_str().unwrap_or("cpu"),
        machine["cores"],
        machine["kernel"].as_str().unwrap_or("linux")
    );
    let letters = text.chars().map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' });
    let mut slug = String::new();
    for letter in letters {
        if letter != '-' || !slug.ends_with('-') {
            slug.push(letter.to_ascii_lowercase());
        }
    }
    slug
}

/// The Gregorian date of a day since 1970-01-01 (H. Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':'));
    value.map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_known_days() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
    }

    #[test]
    fn the_slug_fits_a_file_name() {
        let machine = json!({ "cpu": "AMD  EPYC (R)", "cores": 2, "kernel": "6.1.0-x" });
        assert_eq!(slug(&machine), "amd-epyc-r-2c-6.1.0-x");
    }
}
