//! The tutorial runs as it is written.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The shell blocks of a page, in order.
fn blocks(page: &str) -> Vec<String> {
    page.split("```sh\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("```")?.0.into()))
        .collect()
}

#[test]
fn every_block_of_the_tutorial_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/tutorial.md")).unwrap();
    let blocks = blocks(&page);
    assert_eq!(blocks.len(), 9, "one for each section, and two for what helps");

    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tutorial");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let binaries = Path::new(env!("CARGO_BIN_EXE_incrowd-lab")).parent().unwrap();
    let product = binaries.join("incrowd");
    assert!(product.exists(), "the tutorial needs the product too: cargo test -p incrowd --no-run");
    let path = format!("{}:{}", binaries.display(), env::var("PATH").unwrap());
    for block in &blocks {
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", block])
            .current_dir(&directory)
            .env("PATH", &path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{block}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    for file in [
        "task.toml",
        "service.toml",
        "more/table.csv",
        "cost/report.html",
        "cost/figures/regret-1.svg",
        "curve/figures/epsilon.svg",
        "height/report.html",
    ] {
        assert!(directory.join(file).exists(), "{file}");
    }
    // The map of the page is that of the example, but for its comment.
    let page_map = fs::read_to_string(directory.join("reader.toml")).unwrap();
    let example = fs::read_to_string(root.join("crates/client/examples/reader.toml")).unwrap();
    assert_eq!(example.split_once('\n').unwrap().1, page_map);
}
