//! The Debian package: what is in it, and what lintian and systemd say of it. `guest/package.rs` installs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{Scratch, is_installed, run_ok, skip};

const TIMEOUT: Duration = Duration::from_secs(300);

/// The package, made of the program under test; none where that cannot be, which is said.
pub fn build(scratch: &Scratch, test: &str) -> Option<PathBuf> {
    if let Some(missing) = ["dh", "dpkg-buildpackage"].into_iter().find(|tool| !is_installed(tool)) {
        skip(test, &format!("the program {missing} is not installed"));
        return None;
    }
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/package.sh"));
    command.arg(scratch.path("package")).env("DEB_BUILD_OPTIONS", "noopt");
    command.env("SANWIRE_PROGRAM", env!("CARGO_BIN_EXE_sanwire"));
    let built = run_ok(command, TIMEOUT);
    let mut packages = built.lines().filter(|path| path.contains("/sanwire_"));
    Some(packages.next().expect("the package").into())
}

/// The pages in a directory and all below it.
fn pages(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory").flatten().map(|entry| entry.path());
    let below = |path: PathBuf| if path.is_dir() { pages(&path) } else { vec![path] };
    entries.flat_map(below).filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// Links of a page to files that are not there.
fn broken_links(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).expect("a page");
    let directory = page.parent().expect("its directory");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ', '\n']).next());
    let files = targets.filter(|target| !target.is_empty() && !target.contains(':'));
    let broken = files.filter(|target| !directory.join(target).exists());
    broken.map(|target| format!("{}: {target}", page.display())).collect()
}

#[test]
fn the_package_is_whole_and_lintian_finds_no_errors() {
    let test = "the_package_is_whole_and_lintian_finds_no_errors";
    let scratch = Scratch::new();
    let Some(package) = build(&scratch, test) else { return };
    let tool = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).arg(&package);
        run_ok(command, TIMEOUT)
    };
    let version = tool("dpkg-deb", &["--show", "--showformat=${Version}"]);
    assert!(version.starts_with(concat!(env!("CARGO_PKG_VERSION"), "-")), "{version}");
    let files = tool("dpkg-deb", &["--contents"]);
    for file in [
        "/usr/bin/sanwire\n",
        "/etc/sanwire/sanwire.toml\n",
        "/lib/systemd/system/sanwire.service\n",
        "/lib/systemd/system/sanwire-attach@.service\n",
        "/lib/udev/rules.d/60-sanwire.rules\n",
        "/usr/lib/sysusers.d/sanwire.conf\n",
        "/man1/sanwire-attach.1.gz\n",
        "/man5/sanwire.toml.5.gz\n",
        "/man5/sanwire-attach.toml.5.gz\n",
        "/bash-completion/completions/sanwire\n",
    ] {
        assert!(files.contains(file), "{file}\n{files}");
    }
    let tree = scratch.path("tree");
    let mut extract = Command::new("dpkg-deb");
    extract.arg("--extract").args([&package, &tree]);
    run_ok(extract, TIMEOUT);
    let book = tree.join("usr/share/doc/sanwire");
    let broken: Vec<String> = pages(&book).iter().flat_map(|page| broken_links(page)).collect();
    assert!(pages(&book).len() > 20 && broken.is_empty(), "{broken:#?}");
    for part in ["configuration.md", "openapi.json", "examples/prometheus/rules.yml", "examples/grafana/sanwire.json"] {
        assert!(book.join(part).is_file(), "{part}");
    }
    let mut symbols = std::fs::read_dir(scratch.path("package")).expect("the packages").flatten();
    assert!(symbols.any(|entry| entry.file_name().to_string_lossy().contains("-dbgsym_")), "symbols apart");
    if is_installed("lintian") {
        // As root it is run in tests only.
        tool("lintian", &["--allow-root", "--fail-on", "error"]);
    } else {
        skip(test, "lintian is not installed");
    }
}

#[test]
fn the_service_is_exposed_little() {
    let test = "the_service_is_exposed_little";
    if !is_installed("systemd-analyze") {
        return skip(test, "systemd-analyze is not installed");
    }
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--threshold=25", "--no-pager"]);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/sanwire.service"));
    run_ok(command, TIMEOUT);
}

/// What systemd says of a unit, among the package's units and these files besides.
fn verify(scratch: &Scratch, unit: &str, besides: &[(&str, &str)]) -> String {
    let units = scratch.path("units");
    let _ = fs::remove_dir_all(&units);
    fs::create_dir(&units).expect("a directory");
    let packaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    for entry in fs::read_dir(packaged).expect("the units").flatten() {
        fs::copy(entry.path(), units.join(entry.file_name())).expect("a copy");
    }
    fs::copy(units.join("sanwire-attach@.service"), units.join("sanwire-attach@data.service")).expect("an instance");
    for (name, text) in besides {
        let path = units.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("a file");
    }
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no", unit]).env("SYSTEMD_UNIT_PATH", format!("{}:", units.display()));
    // It also says that the program is not installed here, and fails.
    let output = command.output().expect("it runs");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn units_and_documented_drop_ins_have_no_cycle_and_no_unknown_key() {
    let test = "units_and_documented_drop_ins_have_no_cycle_and_no_unknown_key";
    if !is_installed("systemd-analyze") {
        return skip(test, "systemd-analyze is not installed");
    }
    let scratch = Scratch::new();
    let pages = ["operating", "tuning"].map(|page| {
        fs::read_to_string(format!("{}/../../docs/{page}.md", env!("CARGO_MANIFEST_DIR"))).expect("the page")
    });
    let book = pages.concat();
    let drop_ins = book.split("```ini\n").skip(1).filter_map(|block| block.split("```").next());
    let drop_ins: Vec<&str> = drop_ins.filter(|block| block.starts_with("# systemctl edit sanwire\n")).collect();
    assert!(drop_ins.len() >= 2, "{drop_ins:?}");
    // What the server needs is itself mounted from elsewhere, which no attachment may be before.
    let mount = "[Unit]\nBefore=remote-fs.target\n[Mount]\nWhat=box:/san\nWhere=/srv/san\nType=nfs\nOptions=_netdev\n";
    let all = "[Unit]\nWants=sanwire.service sanwire-attach@data.service remote-fs-pre.target srv-san.mount\n";
    let mut besides = vec![("srv-san.mount", mount), ("all.target", all)];
    let names: Vec<String> = (0..drop_ins.len()).map(|number| format!("sanwire.service.d/{number}.conf")).collect();
    besides.extend(names.iter().map(String::as_str).zip(drop_ins));
    for unit in ["sanwire.service", "sanwire-attach@data.service", "all.target"] {
        let said = verify(&scratch, unit, &besides);
        let bad = |line: &&str| line.contains("cycle") || line.contains("sanwire") && line.contains("nknown");
        assert_eq!(said.lines().find(bad), None, "{unit}: {said}");
    }
}
