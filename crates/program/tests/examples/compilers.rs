//! From the source of an example to its module, by the compiler that users have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sanwire_testing::{is_installed, skip, this_test};

/// The commands of `docs/dvd-programs.md`.
const RUSTC: &str = "--edition 2021 --target wasm32-unknown-unknown --crate-type cdylib -C opt-level=2 -C panic=abort \
                     -C strip=symbols -C link-arg=-zstack-size=8192 -D warnings";
const CLANG: &str = "--target=wasm32 -O2 -Wall -Wextra -Werror -nostdlib -mbulk-memory -Wl,--no-entry -Wl,--strip-all \
                     -Wl,--export=sanwire_abi_1 -Wl,-zstack-size=8192";

/// The module of an example; `None` if its compiler is not here, which is said.
pub(crate) fn module(source: &str) -> Option<Vec<u8>> {
    let path = examples().join(source);
    match path.extension()?.to_str()? {
        "wat" => Some(wat::parse_file(&path).unwrap_or_else(|error| panic!("{error}"))),
        "rs" => {
            // Not what cargo tests with, perhaps under other names: the compiler of who reads the document.
            let has_target = has_target();
            if !has_target {
                skip(&this_test(), "rustc cannot compile for WebAssembly: rustup target add wasm32-unknown-unknown");
            }
            has_target.then(|| compile("rustc", RUSTC, &path))
        }
        _ => {
            let missing = ["clang", "wasm-ld"].into_iter().find(|program| !is_installed(program));
            if let Some(missing) = missing {
                skip(&this_test(), &format!("the program {missing} is not installed"));
            }
            missing.is_none().then(|| compile("clang", CLANG, &path))
        }
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dvd")
}

fn has_target() -> bool {
    let libraries =
        Command::new("rustc").args(["--print", "target-libdir", "--target", "wasm32-unknown-unknown"]).output();
    libraries.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

fn compile(compiler: &str, options: &str, source: &Path) -> Vec<u8> {
    let name = source.file_stem().unwrap().to_string_lossy();
    let module =
        std::env::temp_dir().join(format!("sanwire-example-{name}-{}-{}.wasm", std::process::id(), this_test()));
    let mut command = Command::new(compiler);
    command.args(options.split_whitespace()).arg(source).arg("-o").arg(&module);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let bytes = fs::read(&module).unwrap();
    fs::remove_file(&module).unwrap();
    bytes
}

/// Who copies a line of the document gets what is tested here.
#[test]
fn the_document_compiles_them_in_the_same_way() {
    let document = fs::read_to_string(examples().join("../../docs/dvd-programs.md")).unwrap();
    let words = document.split_whitespace().filter(|word| *word != "\\").collect::<Vec<_>>().join(" ");
    for options in [RUSTC.replace(" -D warnings", ""), CLANG.replace(" -Wall -Wextra -Werror", "")] {
        assert!(words.contains(&options), "docs/dvd-programs.md does not have: {options}");
    }
}
