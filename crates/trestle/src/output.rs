//! Output: a table for people, JSON or YAML for programs, the same data in each.

mod jsonpath;
mod order;

use std::{
    ffi::OsStr,
    io::{self, IsTerminal as _, Write as _},
    sync::{Arc, OnceLock},
};

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use jsonpath::Template;
use serde::Serialize;

use crate::{
    paint::{Tone, shown, tone_of},
    visible::visible,
};

/// The form of a command's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    #[default]
    Table,
    // Without a text each: the list of them stays one line of help.
    Wide,
    Name,
    Json,
    Yaml,
}

/// What `-o` says: a form, and of `jsonpath=TEMPLATE` what is shown of the JSON.
#[derive(Clone, Debug)]
pub struct Output {
    pub form: Format,
    template: Option<Arc<Template>>,
}

/// Reads an [`Output`].
#[derive(Clone, Copy, Debug)]
pub struct OutputParser;

const PATH: &str = "jsonpath=";

impl TypedValueParser for OutputParser {
    type Value = Output;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Output, clap::Error> {
        let Some(text) = value.to_str().and_then(|text| text.strip_prefix(PATH)) else {
            let form = EnumValueParser::<Format>::new().parse_ref(command, arg, value)?;
            return Ok(Output { form, template: None });
        };
        let template = Template::parse(text).map_err(|why| {
            command.clone().error(clap::error::ErrorKind::InvalidValue, format!("-o {PATH}: {why}"))
        })?;
        Ok(Output { form: Format::Json, template: Some(Arc::new(template)) })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(["table", "wide", "name", "json", "yaml", PATH].into_iter().map(PossibleValue::new)))
    }
}

/// What the command line says of all that is shown, once in a process.
#[derive(Debug, Default)]
struct Shape {
    /// What is shown of JSON. None: all of it.
    template: Option<Arc<Template>>,
    /// What lists are sorted by. None: they stay as they come.
    sort_by: Option<String>,
}

static SHAPE: OnceLock<Shape> = OnceLock::new();

/// From now on results are shown so.
pub fn shape(output: &Output, sort_by: Option<String>) {
    // The command line is read once.
    let _ = SHAPE.set(Shape { template: output.template.clone(), sort_by });
}

/// Something a command shows: one row per object. Messages have rows of their own; their JSON is defined with them (`wire`).
pub trait Rows {
    const HEADER: &'static [&'static str];

    fn row(&self) -> Vec<String>;

    /// Columns that are only shown with `-o wide`.
    const WIDE: &'static [&'static str] = &[];

    fn wide(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What names a row: its name, after its namespace if it has one; else what stands first.
fn name_of(header: &[&str], row: &[String]) -> String {
    let of = |title: &str| header.iter().position(|one| *one == title).and_then(|at| row.get(at));
    match (of("namespace").filter(|namespace| !namespace.is_empty()), of("name")) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        (None, Some(name)) => name.clone(),
        (_, None) => row.first().cloned().unwrap_or_default(),
    }
}

impl Format {
    /// Whether people read it, and not a program.
    pub fn is_for_people(self) -> bool {
        matches!(self, Self::Table | Self::Wide | Self::Name)
    }

    fn rows<T: Rows>(self, items: &[&T]) -> anyhow::Result<()> {
        match self {
            Self::Wide => {
                let header = [T::HEADER, T::WIDE].concat();
                let all = items.iter().map(|item| item.row().into_iter().chain(item.wide()).collect());
                write(&table(&header, all))
            }
            Self::Name => items.iter().try_for_each(|item| print(&visible(&name_of(T::HEADER, &item.row())))),
            _ => write(&table(T::HEADER, items.iter().map(|item| item.row()))),
        }
    }

    /// Shows a list.
    pub fn list<T: Rows + Serialize>(self, items: &[T]) -> anyhow::Result<()> {
        let items = match SHAPE.get().and_then(|shape| shape.sort_by.as_ref()) {
            Some(field) => order::sorted(items, field)?,
            None => items.iter().collect(),
        };
        if self.is_for_people() { self.rows(&items) } else { self.data(&items) }
    }

    /// Shows one object.
    pub fn one<T: Rows + Serialize>(self, item: &T) -> anyhow::Result<()> {
        if self.is_for_people() { self.rows(&[item]) } else { self.data(item) }
    }

    /// Shows names: a column for people, texts for programs.
    pub fn names(self, title: &str, names: &[String]) -> anyhow::Result<()> {
        match self {
            Self::Json | Self::Yaml => self.data(&names),
            Self::Name => names.iter().try_for_each(|name| print(&visible(name))),
            _ => write(&table(&[title], names.iter().map(|name| vec![name.clone()]))),
        }
    }

    /// Shows what was done: a sentence for people, an object for programs.
    pub fn done<T: Serialize>(self, sentence: &str, item: &T) -> anyhow::Result<()> {
        if self.is_for_people() { print(sentence) } else { self.data(item) }
    }

    /// Shows one event of a stream, complete on its own and written at once.
    pub fn event<T: Serialize>(self, line: &str, item: &T) -> anyhow::Result<()> {
        match self {
            Self::Table | Self::Wide | Self::Name => print(line),
            Self::Json if template().is_some() => self.data(item),
            Self::Json => print(&serde_json::to_string(item)?),
            Self::Yaml => print(format!("---\n{}", serde_saphyr::to_string(item)?).trim_end()),
        }
    }

    /// Shows data that has no single table. As JSON if a table was asked for.
    pub fn data<T: Serialize>(self, item: &T) -> anyhow::Result<()> {
        let text = match (self, template()) {
            (Self::Yaml, _) => serde_saphyr::to_string(item)?,
            (Self::Json, Some(template)) => template.apply(&serde_json::to_value(item)?),
            _ => serde_json::to_string_pretty(item)?,
        };
        print(text.trim_end())
    }
}

/// What is shown of JSON, if not all of it.
fn template() -> Option<&'static Template> {
    SHAPE.get()?.template.as_deref()
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().map(|title| title.to_uppercase()));
    // Wrapped to the terminal for people; whole lines when a program reads.
    let arrangement =
        if io::stdout().is_terminal() { ContentArrangement::Dynamic } else { ContentArrangement::Disabled };
    table.set_content_arrangement(arrangement);
    for row in rows {
        table.add_row(row.into_iter().map(coloured));
    }
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Each cell is [`visible`] before it is coloured. Words that name a state are coloured; comfy-table leaves colours out where no terminal reads.
fn coloured(text: String) -> Cell {
    let colour = match tone_of(&text) {
        Some(Tone::Good) => Some(Color::Green),
        Some(Tone::Busy) => Some(Color::Yellow),
        Some(Tone::Bad) => Some(Color::Red),
        Some(Tone::Faint) | None => None,
    };
    let cell = Cell::new(visible(&text));
    match colour {
        Some(colour) => cell.fg(colour),
        None => cell,
    }
}

/// Shows a table, whatever the format.
pub fn rows<T: Rows>(items: &[T]) -> anyhow::Result<()> {
    write(&table(T::HEADER, items.iter().map(Rows::row)))
}

/// Writes a text to standard output as it may be shown.
pub fn print(text: &str) -> anyhow::Result<()> {
    write(&shown(text))
}

/// Says something on standard error that does not end the command.
pub fn warn(text: &str) {
    crate::progress::clear();
    // Nobody is left to tell if standard error is closed.
    let _ = writeln!(io::stderr().lock(), "warning: {}", visible(text));
}

/// Writes a line to standard output. A reader that went away is not an error.
fn write(text: &str) -> anyhow::Result<()> {
    crate::progress::clear();
    match writeln!(io::stdout().lock(), "{text}") {
        Err(err) if err.kind() != io::ErrorKind::BrokenPipe => Err(err.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_show_what_a_terminal_would_obey() {
        let rows = [vec!["node\u{1b}]0;owned\u{7}".to_owned(), "1.0\u{9b}2J".to_owned()]];
        let text = table(&["name", "version"], rows.into_iter());
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.contains("node\\u001b]0;owned\\u0007"), "{text}");
    }

    /// JSON and YAML stay what they are for programs, also when a character in them is made visible.
    #[test]
    fn data_says_the_same_when_it_is_shown() {
        let name = "a\u{1b}[2J\u{9b}\u{7f}\u{202e}";
        let json = visible(&serde_json::to_string_pretty(&[name]).unwrap());
        let yaml = visible(&serde_saphyr::to_string(&[name]).unwrap());
        assert!(!(json.clone() + &yaml).contains(|c: char| c.is_control() && c != '\n'));
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [name]);
        assert_eq!(serde_saphyr::from_str::<Vec<String>>(&yaml).unwrap(), [name]);
    }
}
