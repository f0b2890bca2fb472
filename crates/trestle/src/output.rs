//! Output: a table for people, JSON or YAML for programs, the same data in each.

use std::io::{self, IsTerminal as _, Write as _};

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::paint::{Tone, tone_of};

/// The form of a command's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    #[default]
    Table,
    Json,
    Yaml,
}

/// Something a command shows: one row per object.
pub trait Rows {
    const HEADER: &'static [&'static str];

    fn row(&self) -> Vec<String>;
}

impl Format {
    /// Shows a list.
    pub fn list<T: Rows + Serialize>(self, items: &[T]) -> anyhow::Result<()> {
        match self {
            Self::Table => print(&table(T::HEADER, items.iter().map(Rows::row))),
            Self::Json | Self::Yaml => self.data(&items),
        }
    }

    /// Shows one object.
    pub fn one<T: Rows + Serialize>(self, item: &T) -> anyhow::Result<()> {
        match self {
            Self::Table => print(&table(T::HEADER, std::iter::once(item.row()))),
            Self::Json | Self::Yaml => self.data(item),
        }
    }

    /// Shows what was done: a sentence for people, an object for programs.
    pub fn done<T: Serialize>(self, sentence: &str, item: &T) -> anyhow::Result<()> {
        match self {
            Self::Table => print(sentence),
            Self::Json | Self::Yaml => self.data(item),
        }
    }

    /// Shows one event of a stream, complete on its own and written at once.
    pub fn event<T: Serialize>(self, line: &str, item: &T) -> anyhow::Result<()> {
        match self {
            Self::Table => print(line),
            Self::Json => print(&serde_json::to_string(item)?),
            Self::Yaml => print(format!("---\n{}", serde_saphyr::to_string(item)?).trim_end()),
        }
    }

    /// Shows data that has no single table. As JSON if a table was asked for.
    pub fn data<T: Serialize>(self, item: &T) -> anyhow::Result<()> {
        let text = match self {
            Self::Yaml => serde_saphyr::to_string(item)?,
            Self::Table | Self::Json => serde_json::to_string_pretty(item)?,
        };
        print(text.trim_end())
    }
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

/// Words that name a state are coloured; comfy-table leaves colours out where no terminal reads.
fn coloured(text: String) -> Cell {
    let colour = match tone_of(&text) {
        Some(Tone::Good) => Some(Color::Green),
        Some(Tone::Busy) => Some(Color::Yellow),
        Some(Tone::Bad) => Some(Color::Red),
        Some(Tone::Faint) | None => None,
    };
    let cell = Cell::new(text);
    match colour {
        Some(colour) => cell.fg(colour),
        None => cell,
    }
}

/// Writes a line to standard output. A reader that went away is not an error.
pub fn print(text: &str) -> anyhow::Result<()> {
    crate::progress::clear();
    match writeln!(io::stdout().lock(), "{text}") {
        Err(err) if err.kind() != io::ErrorKind::BrokenPipe => Err(err.into()),
        _ => Ok(()),
    }
}
