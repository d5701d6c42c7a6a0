"""The value of a cell: what spreadsheets, exports and people did to it is undone, reported, or recognised as lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outreach_async._plumbing import Change, find_suspects, read_value
from outreach_async.models import STANDARD_FIELDS

CODES = ("email", *STANDARD_FIELDS, "custom_1", "campaign")

CHANGED = [
    # blanks of every kind, and what cannot be seen
    ("email", "ann@acme.example\xa0", "ann@acme.example", "blanks"),
    ("email", "\ufeffann@acme.example\u200b", "ann@acme.example", "blanks"),
    ("email", "ann\u200b@acme.example", "ann@acme.example", "hidden"),
    ("first_name", " Di \u3000", "Di", "blanks"),
    ("first_name", "\u202aBo\u202c", "Bo", "blanks"),
    ("first_name", "\u2800Bo\u3164", "Bo", "blanks"),
    ("last_name", "Le\u2060e", "Lee", "hidden"),
    ("state", "C\u200dA", "CA", "hidden"),
    ("last_name", "Lee\u200d", "Lee", "blanks"),
    ("custom_1", "\t12\x1f", "12", "blanks"),
    ("zip", "SW1A\xa01AA", "SW1A 1AA", "width"),
    ("country", "United\u200aKingdom", "United Kingdom", "width"),
    ("work_phone", "+44\u202f20\u20117946\u20130018", "+44 20-7946-0018", "width"),
    ("work_phone", "\uff0b\uff14\uff14 20 7946 0018", "+44 20 7946 0018", "width"),
    ("work_phone", "\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667", "01234567", "width"),
    ("email", "\uff01ann\uff5e\uff20acme\uff0eexample", "!ann~@acme.example", "width"),
    # guards of spreadsheets
    ("work_phone", "'+44 20 7946 0018", "+44 20 7946 0018", "guard"),
    ("zip", "\u201901234", "01234", "guard"),
    ("zip", '="01234"', "01234", "guard"),
    ("zip", '=""01234""', "01234", "guard"),
    ("work_phone", "=+442079460018", "+442079460018", "guard"),
    ("work_phone", '=T("+442079460018")', "+442079460018", "guard"),
    ("title", "'=mc2", "=mc2", "guard"),
    ("custom_1", "'7001", "7001", "guard"),
    ("custom_1", '="a ""b"""', 'a "b"', "guard"),
    ("website", '=HYPERLINK("https://acme.example";"Acme")', "https://acme.example", "guard"),
    ("company_name", '=HYPERLINK("https://acme.example","Acme")', "Acme", "guard"),
    ("company_name", '=HYPERLINK("https://acme.example")', "https://acme.example", "guard"),
    ("email", "'ann@acme.example'", "ann@acme.example", "quotes"),
    ("email", "\u201cann@acme.example\u201d", "ann@acme.example", "quotes"),
    ("first_name", ' "Ann"', "Ann", "quotes"),
    ("company_name", ' "Acme, ""EU"" Ltd" ', 'Acme, "EU" Ltd', "quotes"),
    # notations of workbooks, HTML and mail
    ("city", "Lyon_x000D_", "Lyon", "escape"),
    ("country", "United_x00A0_Kingdom", "United Kingdom", "escape"),
    ("address_1", "1 High St_x000d_\nFlat 2", "1 High St Flat 2", "escape"),
    ("personal_note", "a_x000D_\nb_x000D_", "a\r\nb", "escape"),
    ("first_name", "Zo&euml;", "Zo\xeb", "entity"),
    ("last_name", "O&#39;Brien", "O'Brien", "entity"),
    ("last_name", "O&apos;Brien", "O'Brien", "entity"),
    ("company_name", "Smith &amp;amp; Sons", "Smith & Sons", "entity"),
    ("company_name", "Acme &lt;EU&gt;", "Acme <EU>", "entity"),
    ("last_name", "&nbsp;Ray", "Ray", "entity"),
    ("work_phone", "&#43;442079460018", "+442079460018", "entity"),
    ("city", "=?UTF-8?Q?Orl=C3=A9ans?=", "Orl\xe9ans", "encoded"),
    ("full_name", "=?utf-8?B?Wm/Dqw==?= =?iso-8859-1?q?_L=E9?=", "Zo\xeb L\xe9", "encoded"),
    ("last_name", "O\x92Brien", "O\u2019Brien", "mojibake"),
    ("city", "Ly\x07on", "Lyon", "control"),
    ("title", "Head of\tSales", "Head of Sales", "lines"),
    ("custom_1", "a\vb", "a\nb", "lines"),
    # texts that are no value
    ("city", "NULL", "", "missing"),
    ("zip", "n/a", "", "missing"),
    ("email", "none", "", "missing"),
    ("work_phone", "N/A", "", "missing"),
    ("mobile_phone", "NA", "", "missing"),
    ("graduation_date", "na", "", "missing"),
    ("website", "n.a.", "", "missing"),
    ("title", "NA", "", "missing"),
    ("state", "n/a", "", "missing"),
    ("personal_note", "NULL", "", "missing"),
    ("first_name", "\\N", "", "missing"),
    ("last_name", "-", "", "missing"),
    ("custom_1", "(blank)" , "", "missing"),
    ("website", "http://", "", "missing"),
    ("job_start_date", "0000-00-00 00:00:00", "", "missing"),
    # numbers and dates
    ("zip", "75001.0", "75001", "decimal"),
    ("work_phone", "442079460018,0", "442079460018", "decimal"),
    ("job_start_date", "2024-03-05 00:00:00", "2024-03-05", "time"),
    ("job_start_date", "2024-03-05T00:00:00.000Z", "2024-03-05", "time"),
    ("graduation_date", "3/5/2024 12:00:00 AM", "3/5/2024", "time"),
    ("graduation_date", "05.03.2024 0:00", "05.03.2024", "time"),
    # labels, and values among others
    ("work_phone", "p:+442079460018", "+442079460018", "label"),
    ("work_phone", "Tel.: +44 20 7946 0018", "+44 20 7946 0018", "label"),
    ("work_phone", "+44 20 7946 0018 (work)", "+44 20 7946 0018", "label"),
    ("zip", "z:01234", "01234", "label"),
    ("email", "Ann Lee <ann@acme.example>", "ann@acme.example", "address"),
    ("email", '"Lee, Ann" <mailto:ann@acme.example>', "ann@acme.example", "address"),
    ("email", "[Ann](mailto:ann@acme.example)", "ann@acme.example", "address"),
    ("email", "mailto:ann@acme.example?subject=Hello", "ann@acme.example", "address"),
    ("email", '<a href="mailto:ann@acme.example">Ann</a>', "ann@acme.example", "address"),
    ("email", "ann@acme.example (Ann Lee)", "ann@acme.example", "address"),
    ("email", "ann@acme.example;", "ann@acme.example", "address"),
    ("email", "<a href='mailto:o'brien@acme.example'>Ann</a>", "o'brien@acme.example", "address"),
    ("email", '<a class="x" href="mailto:ann@acme.example?subject=a" id=1>Ann</a>', "ann@acme.example", "address"),
    ("email", "mailto://ann@acme.example", "ann@acme.example", "address"),
    ("email", "SMTP:ann@acme.example", "ann@acme.example", "address"),
    ("email", "E-mail: ann@acme.example", "ann@acme.example", "address"),
    ("website", "https://\uff41cme.example/\uff11", "https://acme.example/\uff11", "width"),
    ("website", "[Acme](https://acme.example)", "https://acme.example", "address"),
    ("website", "<https://acme.example>,", "https://acme.example", "address"),
    ("website", "acme.example.", "acme.example", "address"),
    ("email", "ann@acme.example; bo@acme.example", "ann@acme.example", "several"),
    ("email", "ann@acme.example and bo@acme.example", "ann@acme.example", "several"),
    ("email", "ann@acme.example/bo@acme.example", "ann@acme.example", "several"),
    ("email", "ann@acme.example\nbo@acme.example", "ann@acme.example", "several"),
    ("email", "Ann <ann@acme.example>, Bo <bo@acme.example>", "ann@acme.example", "several"),
    ("website", "https://acme.example; https://acme.test", "https://acme.example", "several"),
    ("work_phone", "+44 20 7946 0018 / +44 20 7946 0019", "+44 20 7946 0018", "several"),
    ("work_phone", "+44 20 7946 0018 or +44 20 7946 0019", "+44 20 7946 0018", "several"),
    ("city", "Lyon ::: Paris", "Lyon", "several"),
    ("work_phone", "0711/123456", "0711 123456", "notation"),
    ("work_phone", "+44 20 7946 0018 (ext. 7)", "+44 20 7946 0018 ext. 7", "notation"),
    ("work_phone", "+49/30/123456", "+49 30 123456", "notation"),
    ("work_phone", "206_555_0100", "206 555 0100", "notation"),
    ("work_phone", "\U0001f4de [+1] 206 555 0100;", "(+1) 206 555 0100", "notation"),
    ("work_phone", "+206\u2022555\u20220100*", "+206 555 0100", "notation"),
    ("work_phone", "+44 20 7946 0018 / 19", "+44 20 7946 0018", "several"),
    ("work_phone", "T\xe9l. 01 23 45 67 89 poste 12", "01 23 45 67 89 ext. 12", "notation"),
    ("work_phone", "+7 (495) 123-45-67 \u0434\u043e\u0431. 12", "+7 (495) 123-45-67 ext. 12", "notation"),
    ("work_phone", "03-1234-5678 \u5185\u7dda12", "03-1234-5678 ext. 12", "notation"),
    ("work_phone", "011 880 1812-345678", "+880 1812-345678", "notation"),
    ("work_phone", "0011 44 20 7946 0018", "+44 20 7946 0018", "notation"),
    ("work_phone", "GB +44 20 7946 0018 (UK)", "+44 20 7946 0018", "label"),
    ("work_phone", "c: 206 555 0100", "206 555 0100", "label"),
    ("work_phone", "\u0442\u0435\u043b. +7 495 123 45 67", "+7 495 123 45 67", "label"),
    ("work_phone", "\u7535\u8bdd\uff1a010-12345678", "010-12345678", "label"),
    ("work_phone", "+1 206 555 0100<br>", "+1 206 555 0100", "label"),
    ("work_phone", "tel:+44-20-7946-0018;ext=7", "+44-20-7946-0018 ext. 7", "label"),
]  # fmt: skip

REPORTED = [
    ("last_name", "Null", "missing"),
    ("last_name", "NULL", "missing"),
    ("first_name", "N/A", "missing"),
    ("custom_1", "N/A", "missing"),
    ("personal_note", "_x000D_ as it is", "escape"),
    ("email", "bo&#64;acme.example", "entity"),
    ("email", "'ann@acme.example", "guard"),
    ("email", "ann@acme.example&nbsp;", "entity"),
    ("website", "https://wiki.example/Acme_Inc.", "address"),
    ("custom_1", "None", "missing"),
    ("custom_1", "'99", "guard"),
    ("graduation_date", "'24", "guard"),
    ("website", "https://acme.example/?a=1&amp;b=2", "entity"),
    ("city", "Orl\xc3\xa9ans", "mojibake"),
    ("city", "Lyon\x81", "control"),
    ("city", "=?UNKNOWN?Q?a?=", "encoded"),
    ("city", "=?utf-8?B?/w==?=", "encoded"),
    ("job_start_date", "45356", "serial"),
    ("job_start_date", "45356.5", "serial"),
    ("custom_1", "4.1E+11", "scientific"),
]

DAMAGED = [
    ("city", "#N/A", "error"),
    ("custom_1", "Err:502", "error"),
    ("zip", "#####", "error"),
    ("first_name", "{{first_name}}", "placeholder"),
    ("first_name", "*|FNAME|*", "placeholder"),
    ("first_name", "\xabFirst_Name\xbb", "placeholder"),
    ("company_name", "{{{company}}}", "placeholder"),
    ("first_name", "[%name%]", "placeholder"),
    ("city", "#\u0421\u0421\u042b\u041b\u041a\u0410!", "error"),
    ("city", "#SAKNAS!", "error"),
    ("city", "#GETTING_DATA", "error"),
    ("city", "Loading...", "error"),
    ("first_name", "[object Object]", "error"),
    ("first_name", "%FIRSTNAME%", "placeholder"),
    ("company_name", "[Company Name]", "placeholder"),
    ("first_name", "<test lead: dummy data for full_name>", "placeholder"),
    ("work_phone", "p:<test lead: dummy data for phone_number>", "placeholder"),
    ("work_phone", "4.4E+11", "scientific"),
    ("zip", "7.5E+04", "scientific"),
    ("work_phone", "1-800-FLOWERS", "phone"),
    ("work_phone", "1-800-555-HELP", "phone"),
    ("work_phone", "Fax: 206 555 0100", "phone"),
    ("work_phone", "no 206 555 0100", "phone"),
    ("work_phone", "555-019", "phone"),
    ("work_phone", "1234567890123456", "phone"),
    ("city", "Ly\0on", "unsendable"),
    ("custom_1", "\ud83d", "unsendable"),
    ("zip", "1" * 1001, "long"),
    ("city", "&amp;" + "_x0" * 9 + "_x0007_" + "007_" * 9, "long"),
]

PLAIN = {
    "email": [
        "ann@acme.example",
        "o'brien@acme.example",
        "a&b@acme.example",
        "a/b@acme.example",
        "élève@école.example",
        "ann@\u0646\u0627\u0645\u0647\u200c\u0627\u06cc.example",
        "ann lee@acme.example",
        '"ann lee"@acme.example',
        "a_x1@acme.example",
    ],
    "work_phone": [
        "+44 (0)20 7946-0018",
        "206.555.0101",
        "+1 206 555 0100 x12",
        "020 7946 0018,12",
        "555-0199",
        "123456789012345",
    ],
    "zip": ["01234", "SW1A 1AA", "75001-1234", "1E05", "1" * 1000],
    "job_start_date": ["2024-03-05", "2024", "2024-03", "3/5/2024", "2024-03-05 09:30:00"],
    "website": [
        "https://a.example/\u0645\u06cc\u200c\u062e",
        "https://a.example/\uff2e",
        "acme.example",
        "<acme>",
        "https://acme.example/?a=1&b=2#c",
        "https://acme.example/a_x_(b)'s?d=%20",
    ],
    "last_name": ["O'Brien", "'Abd", "Nonesuch", "True", "Lee-Ray", "M\xfcller", "Nulla", "'t Hart", "Lee (n\xe9e Ray)"],
    "first_name": [
        "Ann \U0001f680",
        "\u0645\u06cc\u200c\u062e",
        "\U0001f469\u200d\U0001f4bb",
        "\u0d28\u0d4d\u200d",
        "\u1790\u17d2\u1784\u17c3\u200b\u1796\u17bb\u1792",
    ],
    "company_name": [
        "=mc2",
        "\xabName\xbb & Co",
        "[x] Company",
        "#SALE!",
        "AT&T",
        "R&D;",
        "[x]",
        "C#",
        "'90s Music",
        "Acme\xa0SA",
        '"Acme" Ltd',
        "&Lt;",
        "\xf0\u20ac\u20ac\u20ac",
        "50%",
        "Null",
        "*x*",
        "a_x0041_b",
        "_x005F_x000D_",
        "<b>R &amp; D</b>",
        "www.a.example?b&lt;=1",
        "&#0;",
        "&#1;",
    ],
    "country": ["NA", "Na", "C\xf4te d'Ivoire"],
    "custom_1": [
        "'quoted'",
        "{{first_name}}",
        "*|FNAME|*",
        "a\nb",
        "a ::: b",
        "https://a.example/?b&amp;c",
        "null?",
        "Nan",
        "1.0",
        "a\u200bb",
        "=?",
        '= "',
        "#1",
    ],
    "campaign": ["Spring launch"],
    "personal_note": ["Met at the fair: likes tea, 100 % sure", "a\nb"],
}


@pytest.mark.parametrize(("code", "text", "value", "kind"), CHANGED)
def test_a_text_is_sent_as_what_is_meant_and_the_change_is_reported(code: str, text: str, value: str, kind: str) -> None:
    got, changes = read_value(code, text)
    assert (got, kind in {change.kind for change in changes}) == (value, True)
    assert find_suspects(code, [text]) == {text}
    for change in changes:
        assert (change.value, change.damaged) == (value, False)
        assert change.message.endswith(change.reason.rpartition("; ")[2])


SAMPLES = {
    "email": "ann@acme.example",
    "zip": "SW1A 1AA",
    "country": "FR",
    "state": "CA",
    "timezone": "UTC",
    "stack_overflow": "ann",
}
SAMPLES |= dict.fromkeys(("website", "website_2", "website_3"), "https://acme.example")
SAMPLES |= dict.fromkeys(("job_start_date", "graduation_date"), "2024-03-05")
SAMPLES |= {code: "+44 20 7946 0018" for code in CODES if code.endswith("_phone")}


@pytest.mark.parametrize("code", CODES)
def test_what_programs_put_around_a_value_is_removed_in_every_field(code: str) -> None:
    sample = SAMPLES.get(code, "Lee Ray")
    first, rest = sample[0], sample[1:]
    around = [f"\t{sample}\xa0", f"{sample}_x000D_", f'="{sample}"', f' "{sample}" ', f"{first}\x07{rest}", f"{sample}\r\n"]
    if code != "email" and "website" not in code and code != "stack_overflow":
        around += [f"&nbsp;{sample}&#32;", f"&#{ord(first)};{rest}"]
    if not {"custom_1", "campaign"} & {code} and not code.startswith("personal_note"):
        around += [f"{first}\u200b{rest}"]
        around += [f"{sample} ::: {sample}"]
    around += [f"=?utf-8?Q?={ord(first):02X}{rest.replace(' ', '_').replace('?', '=3F')}?="]
    for text in around:
        assert (text, read_value(code, text)[0]) == (text, sample)
        assert find_suspects(code, [text]) == {text}


@pytest.mark.parametrize(("code", "text", "kind"), REPORTED)
def test_a_text_that_may_be_meant_is_sent_as_it_is_and_reported(code: str, text: str, kind: str) -> None:
    value, (change,) = read_value(code, text)
    assert (value, change.kind, change.value, change.damaged) == (text, kind, None, False)
    assert find_suspects(code, [text]) == {text}


@pytest.mark.parametrize(("code", "text", "kind"), DAMAGED)
def test_a_text_whose_value_is_lost_is_reported_as_damaged(code: str, text: str, kind: str) -> None:
    value, (change,) = read_value(code, text)
    assert (value, change.kind, change.value, change.damaged) == (text, kind, None, True)
    assert find_suspects(code, [text]) == {text}


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, texts in PLAIN.items() for text in texts])
def test_a_text_that_only_resembles_a_changed_one_is_left_alone(code: str, text: str) -> None:
    assert read_value(code, text) == (text, ())


@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\xa0", "\u200b\ufeff"])
def test_a_blank_text_is_no_value_and_no_change(blank: str) -> None:
    assert read_value("city", blank) == ("", ())
    assert find_suspects("city", [blank]) == ({blank} if blank else set())


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("email", ["ann@acme.example", "bo_ray+x@acme.example"]),
        ("work_phone", ["+44 (0)20 7946-0018", "206.555.0101", ""]),
        ("zip", ["01234", "SW1A 1AA"]),
        ("job_start_date", ["2024-03-05", "2024"]),
        ("website", ["acme.example", "https://acme.example/a_b?c=%20&d#e"]),
        ("last_name", ["O'Brien", "M\xfcller", "Smith & Sons", 'Lee "Bo" Ray', "Head of Sales: C# {x} [y] <z> | 5 %; a_b=c"]),
    ],
)
def test_plain_texts_are_no_suspects_so_that_they_cost_nothing(code: str, texts: list[str]) -> None:
    assert find_suspects(code, texts) == set()
    many = [f"{text}{at}" if code == "zip" else text for at in range(5) for text in texts]
    assert find_suspects(code, [*many, "\tx", "\ty"]) == {"\tx", "\ty"}


def test_a_message_names_the_text_the_value_and_the_remedy_and_hides_keys() -> None:
    ((kind, message, reason, *_),) = read_value("zip", "\t01234")[1]
    what, remedy = "has blanks or invisible characters around it", "remove them"
    assert (kind, message, reason) == ("blanks", rf"'\t01234' {what} and is sent as '01234'; {remedy}", f"{what}; {remedy}")
    assert "key_secret" not in read_value("city", " key_secret12345678901234567890 ")[1][0].message


PIECES = st.sampled_from(
    [
        *"'\"=&;:_x0#@+-.,/()<>[]{}|*\\% \t\n\r\0aE7\xa0\xad\u200b\u200d\u202e\ufeff\uff11\xc3\xa9\x92\ud83d",
        *("NULL", "N/A", "&amp;", "&#38;", "lt;", "_x000D_", "007_", "=?utf-8?Q?", "?=", ":::", "E+11", ".0", "2024-03-05", '="'),
        *(
            "T00:00:00Z",
            "ann@acme.example",
            "+44 20 7946 0018",
            "01234",
            "https://acme.example",
            "mailto:",
            "p:",
            "ext. 7",
            "a@b.c",
        ),
        *("{{name}}", "Lee"),
    ]
)
ODD_TEXTS = st.one_of(
    st.lists(PIECES, max_size=6).map("".join),
    st.text(max_size=12),
    st.sampled_from([text for _, text, *_ in (*CHANGED, *REPORTED, *DAMAGED)]),
)


@given(st.sampled_from(CODES), ODD_TEXTS)
def test_a_value_that_is_read_again_is_not_changed(code: str, text: str) -> None:
    value, _ = read_value(code, text)
    again, changes = read_value(code, value)
    assert again == value
    assert not [change for change in changes if change.value is not None]


@given(st.sampled_from(CODES), st.lists(ODD_TEXTS, max_size=20))
def test_no_text_that_is_changed_or_reported_escapes_the_search(code: str, texts: list[str]) -> None:
    meant = {text for text in texts if read_value(code, text) != (text, ())}
    assert meant <= find_suspects(code, texts) <= {*texts}


@given(
    st.sampled_from(CODES), st.text(st.characters(categories=["L", "Nd"], max_codepoint=0x24F, exclude_characters="\xaa\xb5\xba"))
)
def test_a_word_is_never_changed_unless_it_is_a_number_of_another_form(code: str, text: str) -> None:
    assert read_value(code, text)[0] in {text, ""}


def test_what_a_reader_knows_of_a_number_or_an_error_is_a_change_too() -> None:
    kept, lost = Change.of_number("-123456789012345"), Change.of_number("1234567890123456")
    assert (kept.kind, kept.damaged, Change.of_number("1234567890123456", exact=True).kind) == ("number", False, "number")
    assert (lost.kind, lost.damaged, lost.message.endswith(lost.reason)) == ("digits", True, True)
    assert (Change.of_error().kind, Change.of_error().value, Change.of_error().damaged) == ("error", None, True)
