"""Checks how comments begin, and what they must say (CONTRIBUTING.md, *Style*). Used by lint.py."""

import ast
import io
import re
import tokenize

# Words with which no comment may begin: it begins with a verb, or with a noun that names the thing.
_FRAGMENT = re.compile(r"(?:Of|By|As|And|What|Where|Whether|Who|Whoever|Whose|Which|Those)\b")
# Pronouns that only people may have: the word before the pronoun must match `_PEOPLE`.
_WHO = re.compile(r"(?P<before>\w*)\s*\b(?:who|whoever|whom)\b", re.IGNORECASE)
_PEOPLE = re.compile(r"(?:people|persons?|users?|operators?|engineers?|readers?|authors?|attackers?)$")

# The comment of a function that may fail says how. No such comment is needed in the schemes of a list,
# because their functions are described at the concept of the list.
_MAY_FAIL = re.compile(r"(?:virtual |static |inline |\[\[nodiscard\]\] )*Result<[^;=]*>\s+(\w+)\(")
_OF_CONCEPTS = {"check_invariants"}
_SCHEMES = re.compile(r"src/conntrack/(?:table|ageing|sharing)/|src/.*/test_|src/.*_(?:impl|of_table)\.h")


def _of_c_and_go(lines):
    """Yields (line number, text) of each comment; comments on successive lines are one comment."""
    block, begins = [], 0
    for number, line in enumerate(lines, 1):
        alone = re.match(r"\s*//[/!]?<?(?: |$)(.*)", line)
        if alone:
            begins = begins if block else number
            block.append(alone[1])
            continue
        if block:
            yield begins, " ".join(block)
            block = []
        behind = re.search(r"///< (.*)", line)
        if behind:
            yield number, behind[1]
    if block:
        yield begins, " ".join(block)


def _of_python(lines):
    text = "\n".join(lines) + "\n"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            doc = ast.get_docstring(node)
            if doc:
                yield node.body[0].lineno, doc
    block, ends = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_alone = token.line.lstrip().startswith("#")
        if token.type != tokenize.COMMENT or token.string.startswith("#!") or not is_alone:
            continue
        number = token.start[0]
        if block and number != ends + 1:
            yield ends - len(block) + 1, " ".join(block)
            block = []
        block.append(token.string.lstrip("# "))
        ends = number
    if block:
        yield ends - len(block) + 1, " ".join(block)


def _check_errors(lines):
    comment, is_private = [], False
    for number, line in enumerate(lines, 1):
        code = line.strip()
        if code.startswith("///"):
            comment.append(code)
            continue
        if re.match(r"(class|struct)\b[^;]*$", line):  # only those that are not nested
            is_private = line.startswith("class")
        elif code in ("private:", "protected:"):
            is_private = True
        elif code == "public:":
            is_private = False
        if re.match(r"(template|requires)\b", code):
            continue
        match = _MAY_FAIL.match(code)
        is_new = "override" not in "".join(lines[number - 1 : number + 1])
        if match and is_new and not is_private and match[1] not in _OF_CONCEPTS:
            if not any(re.search(r"rror|Implements", text) for text in comment):
                yield number, f"{match[1]} may fail: say how, \"Errors: ...\""
        comment = []


def check(path, lines):
    if path.endswith((".h", ".cc", ".c", ".go")):
        comments = _of_c_and_go(lines)
    elif path.endswith(".py"):
        comments = _of_python(lines)
    else:
        return
    for number, text in comments:
        first = _FRAGMENT.match(text[:1].upper() + text[1:])
        if first:
            yield number, f'a comment begins with "{text.split()[0]}": with a verb, or what it is about'
        for who in _WHO.finditer(text):
            if not _PEOPLE.search(who["before"]):
                yield number, f'"{who[0].strip()}" is for people: name the thread, process or packet'
    if path.endswith(".h") and path.startswith(("src/", "include/")) and not _SCHEMES.match(path):
        yield from _check_errors(lines)
