//! The program as users meet it: exit codes, and messages that say what to do.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use sanwire_testing::{skip, this_test};

fn sanwire(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    command.args(arguments).env_remove("SANWIRE_LOG").output().expect("the program runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn refused(arguments: &[&str], code: i32, part: &str) {
    let output = sanwire(arguments);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{message}");
    assert!(message.contains(part), "{arguments:?}\n{message}");
}

fn scratch(name: &str) -> std::path::PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a directory");
    path
}

#[test]
fn help_and_version_are_no_errors() {
    for command in ["serve", "discover", "ls", "info", "attach", "detach", "cp", "bench", "id", "completions", "man"] {
        let output = sanwire(&[command, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{command}");
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(help.contains("Example"), "{command}\n{help}");
    }
    let version = String::from_utf8(sanwire(&["--version"]).stdout).expect("UTF-8");
    assert_eq!(version, format!("sanwire {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    refused(&[], 2, "Usage: sanwire");
    refused(&["sreve"], 2, "a similar subcommand exists: 'serve'");
    refused(&["serve", "--volume", "ram:1G"], 2, "'ram:1G' has no name: a volume is NAME=STORE");
    refused(
        &["serve", "--wire", "eth0"],
        2,
        "use hs-eth:IF (like hs-eth:eth0), hs-ip:ADDR[:5674] (like hs-ip:0.0.0.0), iscsi:",
    );
    refused(&["serve", "--allow", "me"], 2, "use an IP address, a prefix like 10.0.0.0/8");
    refused(&["info", "disk0"], 2, "expected hs+ip://HOST[:5674]/VOLUME, hs+eth://[IF]/SERVER/VOLUME, iscsi://");
    refused(&["info", "hs+ip://box"], 2, "names no volume: add /VOLUME (`sanwire ls hs+ip://box` lists them)");
    refused(&["cp", "a.img", "b.img"], 2, "neither end is a volume");
    refused(&["cp", "hs+ip://a/b", "hs+ip://a/b"], 2, "is both ends of the copy");
    refused(&["cp", "-", "b.img"], 2, "neither end is a volume");
    refused(&["cp", "hs+ip://a/b", "-", "--resume"], 2, "a pipe cannot be read twice");
    refused(&["bench", "hs+ip://a/b", "--reads", "0"], 2, "add --overwrite if that is meant");
    refused(&["attach", "hs+ip://a/b", "--socket", "/x"], 2, "are for --as nbd");
    refused(
        &["attach", "hs+ip://a/b", "--as", "nbd", "--listen", "a:1"],
        2,
        "an address is IP:PORT, like 127.0.0.1:10809",
    );
    refused(&["info", "iscsi://a/iqn.2026-11.org.sanwire:b"], 2, "names no volume: add /LUN");
    refused(&["--log", "loud", "ls"], 2, "[possible values: off, error, warn, info, debug, trace]");
}

/// Who gives one relies on what is not done.
#[test]
fn an_option_of_another_protocol_is_exit_code_2() {
    let [hyperscsi, iscsi, aoe, hdsp, visa] = [
        "hs+ip://127.0.0.1:1/a",
        "iscsi://127.0.0.1:1/iqn.2026-11.org.sanwire:a/0",
        "aoe:///1.0",
        "hdsp:///box/a",
        "visa://127.0.0.1:1/a",
    ];
    let all = [hyperscsi, iscsi, aoe, hdsp, visa];
    for (option, owner, fitting) in [
        (&["--initiator-name", "iqn.2026-11.org.example:me"][..], "iSCSI", &[iscsi][..]),
        (&["--target-user", "us", "--target-password-file", "/none"], "iSCSI", &[iscsi]),
        (&["--digests"], "iSCSI", &[iscsi]),
        (&["--connections", "2"], "iSCSI", &[iscsi]),
        (&["--iser-path", "rdma"], "iSER", &[]),
        (&["--recovery-level", "2"], "iSCSI", &[iscsi]),
        (&["--command-timeout", "5"], "iSCSI", &[iscsi]),
        (&["--security", "aes-256-gcm"], "HyperSCSI, HDSP and VISA", &[hyperscsi, hdsp, visa]),
        (&["--secret-file", "/none"], "HyperSCSI, HDSP and VISA", &[hyperscsi, hdsp, visa]),
        (&["--compression", "required"], "HyperSCSI", &[hyperscsi]),
        (&["--cap", "1M"], "HyperSCSI", &[hyperscsi]),
        (&["--lock-media"], "HyperSCSI", &[hyperscsi]),
        (&["--recovery", "window"], "HyperSCSI", &[hyperscsi]),
        (&["--links", "1"], "HyperSCSI", &[hyperscsi]),
        (&["--disk-type", "ata"], "HDSP", &[hdsp]),
        (&["--visa-mode", "classic"], "VISA", &[visa]),
        (&["--visa-checksum", "either"], "VISA", &[visa]),
        (&["--visa-payload", "4K"], "VISA", &[visa]),
    ] {
        let told = format!("{} is for {owner}, and ", option[0]);
        for url in all.into_iter().filter(|url| !fitting.contains(url)) {
            for command in [&["info", url][..], &["bench", url], &["attach", url], &["cp", url, "/dev/null"]] {
                refused(&[command, option].concat(), 2, &told);
            }
            let server = url.trim_end_matches("/a").trim_end_matches("/0").trim_end_matches("1.0");
            for command in [&["ls", server][..], &["discover", server]] {
                refused(&[command, option].concat(), 2, &told);
            }
        }
    }
    refused(
        &["cp", hyperscsi, visa, "--digests"],
        2,
        "--digests is for iSCSI, and hs+ip://127.0.0.1:1 and visa://127.0.0.1:1 speak something else: leave it out",
    );
    // What is for one end is no mistake: it goes on, and finds nobody there.
    let key = scratch("other-protocol").join("client.key");
    let key = ["--key-file", key.to_str().expect("UTF-8"), "--wait", "0.1"];
    refused(&[&["cp", hyperscsi, iscsi, "--digests", "--cap", "1M"][..], &key].concat(), 1, "127.0.0.1:1");
    refused(&["manage", iscsi, "status", "--links", "1"], 2, "--links is for HyperSCSI, and ");
}

#[test]
fn what_goes_wrong_is_told_in_the_format_of_the_log() {
    let key = scratch("log-format").join("client.key");
    let ls = ["ls", "hs+ip://127.0.0.1:1", "--wait", "0.1", "--key-file", key.to_str().expect("UTF-8")];
    let said = |format: &str| stderr(&sanwire(&[&["--log-format", format][..], &ls].concat()));
    assert!(said("text").starts_with("sanwire: "), "{}", said("text"));
    assert!(said("journald").starts_with("<3>sanwire: "), "{}", said("journald"));
    let line: serde_json::Value = serde_json::from_str(said("json").lines().last().expect("a line")).expect("JSON");
    assert_eq!(line["level"], "error", "{line}");
    assert!(line["message"].as_str().is_some_and(|text| text.contains("127.0.0.1:1")), "{line}");
    assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
}

#[test]
fn a_wrong_configuration_is_exit_code_2_with_file_and_line() {
    let file = scratch("configuration").join("sanwire.toml");
    let path = file.to_str().expect("UTF-8");
    fs::write(&file, "[[volume]]\nname = \"a\"\nstore = \"ram:1G\"\nspeed = 3\n").expect("written");
    refused(&["serve", "--config", path], 2, &format!("sanwire: {path}:4: unknown field `speed`"));
    fs::write(&file, "password-file = \"/nonexistent/password\"\n").expect("written");
    refused(&["serve", "--config", path], 2, "cannot read the password file /nonexistent/password");
    refused(&["serve", "--config", "/nonexistent.toml"], 2, "cannot read the configuration file /nonexistent.toml");
}

#[test]
fn a_wrong_configuration_opens_nothing() {
    let directory = scratch("opens-nothing");
    let image = directory.join("new.img");
    let volume = format!("a=file:{},size=1M", image.display());
    refused(&["serve", "--volume", &volume, "--volume", "a=ram:1M"], 2, "two volumes are called a");
    assert!(!image.exists(), "the image was made before everything was checked");
}

#[test]
fn completions_and_manual_pages_are_generated() {
    let script = String::from_utf8(sanwire(&["completions", "bash"]).stdout).expect("UTF-8");
    assert!(script.contains("--password-file"), "{script}");
    let directory = scratch("man");
    assert!(sanwire(&["man", directory.to_str().expect("UTF-8")]).status.success());
    let page = fs::read_to_string(directory.join("sanwire-serve.1")).expect("a page for serve");
    assert!(page.contains("password"), "{page}");
    for section in ["NOTES", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES", "\"SEE ALSO\""] {
        assert!(page.contains(&format!("\n.SH {section}\n")), "{section}\n{page}");
    }
    assert!(page.contains("\n.nf\n  sanwire serve\n"), "examples are not filled\n{page}");
    refused(&["man", "/proc/nowhere"], 1, "cannot write manual pages into /proc/nowhere");
}

#[test]
fn a_file_that_is_not_there_is_a_failure_and_not_a_misuse() {
    let output = sanwire(&["detach", "nothing-of-this-name"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("nothing-of-this-name"), "{}", stderr(&output));
    let missing = "a=file:/nonexistent/a.img,size=1M";
    refused(&["serve", "--volume", missing], 1, "cannot create /nonexistent/a.img: No such file or directory");
    refused(&["serve", "--volume", missing], 1, "check the path, and make its directory");
}

#[test]
fn a_client_knows_its_id() {
    let key = scratch("id").join("client.key");
    let key = key.to_str().expect("UTF-8");
    let first = sanwire(&["id", "--key-file", key]);
    let id = String::from_utf8(first.stdout).expect("UTF-8");
    assert!(id.len() == 33 && id.trim().bytes().all(|digit| digit.is_ascii_hexdigit()), "{id}");
    assert_eq!(sanwire(&["id", "--key-file", key]).stdout, id.as_bytes(), "the key is kept");
}

#[test]
fn a_key_that_is_shown_is_not_made() {
    let file = scratch("key-show").join("typed-wrongly/server.key");
    refused(&["key", "show", file.to_str().expect("UTF-8")], 2, "there is no key file");
    assert!(!file.exists() && !file.parent().is_some_and(Path::exists));
}

/// What is written is right wherever it is read: only a start, and who looks for what it would miss, ask for adapters.
#[test]
fn without_rdma_adapters_server_and_client_say_what_is_missing() {
    if fs::read_dir("/sys/class/infiniband").is_ok_and(|mut adapters| adapters.next().is_some()) {
        return skip(&this_test(), "this host has RDMA adapters");
    }
    let directory = scratch("no-rdma");
    let [key, state] = ["client.key", "state"].map(|name| directory.join(name).display().to_string());
    let disk = "iser://127.0.0.1:1/iqn.2026-11.org.sanwire:a/0";
    let missing = "there is no RDMA here: ";
    for command in [&["info", disk][..], &["ls", disk], &["cp", disk, "/dev/null"], &["discover", "iser://127.0.0.1:1"]]
    {
        refused(&[command, &["--iser-path", "rdma", "--key-file", &key]].concat(), 1, missing);
    }
    let serve = ["serve", "--wire", "iser:127.0.0.1,path=rdma", "--volume", "a=ram:1M"];
    let files = ["--state-directory", &state, "--key-file", &key];
    let told = format!("wire iser:127.0.0.1:3260,path=rdma: {missing}");
    refused(&[&serve[..], &files].concat(), 1, &told);
    refused(&[&serve[..], &files, &["--check"]].concat(), 1, &told["wire ".len()..]);
}

/// An example that the document names, as a module.
fn one_writer(directory: &Path) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dvd/one_writer.wat");
    let module = directory.join("one_writer.wasm");
    fs::write(&module, wat::parse_file(source).expect("WebAssembly")).expect("a file");
    module.to_str().expect("UTF-8").into()
}

#[test]
fn a_program_of_a_derived_device_is_asked_without_a_server() {
    let program = one_writer(&scratch("dvd-test"));
    let commands = ["write 0+8 by=chap:a", "write 8+8 by=chap:b", "read 0+8"];
    let mut arguments = vec!["dvd", "test", &program];
    commands.iter().for_each(|command| arguments.extend(["--command", command]));
    let output = sanwire(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "64 KiB of memory, 0 bytes of state, judges write, discard, copy-target");
    let line = |start: &str| *lines.iter().find(|line| line.starts_with(start)).expect(start);
    assert!(line(commands[0]).contains("  allow "), "{text}");
    assert!(line(commands[1]).contains("refuse: data protect: Write protected"), "{text}");
    assert!(line(commands[2]).contains("allow, without being asked"), "{text}");
    let fuel = |command: &str| -> u64 {
        // Command, verdict, fuel and time.
        let cells = line(command).split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.collect::<Vec<_>>()[2].parse().expect("a number")
    };
    let [allowed, refused, not_asked] = commands.map(fuel);
    assert!((1..100).contains(&allowed) && (1..100).contains(&refused) && not_asked == 0, "{text}");
}

#[test]
fn a_program_that_fails_and_what_is_none_are_errors() {
    let directory = scratch("dvd-test-errors");
    let program = one_writer(&directory);
    refused(
        &["dvd", "test", &program, "--command", "write 0+8", "--fuel", "1"],
        1,
        "the program failed in 1 of its calls",
    );
    refused(&["dvd", "test", &program, "--command", "frob 0+8"], 2, "'frob' is no command");
    refused(&["dvd", "test", &program], 2, "--command");
    let text = directory.join("text.wat");
    fs::write(&text, "(module)").expect("a file");
    refused(
        &["dvd", "test", text.to_str().expect("UTF-8"), "--command", "flush"],
        2,
        "text.wat: this is WebAssembly in text form",
    );
    refused(&["dvd", "test", "/not/there.wasm", "--command", "flush"], 1, "/not/there.wasm cannot be read");
}
