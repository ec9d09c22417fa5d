//! `tenure config show`: every setting, and where it comes from.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::config::{Origin, Origins, Setting};
use crate::exit::Ending;
use crate::redact;
use crate::show;

/// One setting as `--json` shows it; docs/json.md.
#[derive(Debug, Serialize)]
struct SettingJson<'a> {
    name: &'a str,
    value: Option<String>,
    origin: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
}

#[derive(Debug, Serialize)]
struct SettingsJson<'a> {
    file: Option<String>,
    settings: Vec<SettingJson<'a>>,
}

pub(crate) fn show(origins: &Origins, json: bool) -> Ending {
    if json {
        let file = origins.file.as_ref().map(|file| redact::text(&file.to_string_lossy()));
        let settings = origins.settings.iter().map(SettingJson::of).collect();
        show::print_json(&SettingsJson { file, settings })?;
        return Ok(ExitCode::SUCCESS);
    }
    for setting in &origins.settings {
        let text = match shown(setting) {
            Some(value) => format!("{} = {}", setting.name, show::escape(&value)),
            None => setting.name.clone(),
        };
        show::print(format_args!("{text:<36} {}", whence(&setting.origin)))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl SettingJson<'_> {
    fn of(setting: &Setting) -> SettingJson<'_> {
        let (origin, from) = match &setting.origin {
            Origin::BuiltIn => ("default", None),
            Origin::File(path, line) => ("file", Some(place(path, *line))),
            Origin::Elector(name) => ("environment", Some((*name).to_owned())),
            Origin::Variable(name) => ("environment", Some(name.clone())),
            Origin::Flag => ("flag", None),
        };
        SettingJson { name: &setting.name, value: shown(setting), origin, from }
    }
}

/// The value without its secrets.
fn shown(setting: &Setting) -> Option<String> {
    let shown = match setting.name.as_str() {
        "store" => redact::url,
        "etcd-members" => redact::members,
        _ => redact::text,
    };
    setting.value.as_deref().map(shown)
}

fn whence(origin: &Origin) -> String {
    match origin {
        Origin::BuiltIn => "default".to_owned(),
        Origin::File(path, line) => show::escape(&place(path, *line)),
        Origin::Elector(name) => (*name).to_owned(),
        Origin::Variable(name) => name.clone(),
        Origin::Flag => "the command line".to_owned(),
    }
}

/// A line of the file. The file's name may be a URL that was meant for another flag.
fn place(path: &Path, line: usize) -> String {
    format!("{}:{line}", redact::text(&path.to_string_lossy()))
}
