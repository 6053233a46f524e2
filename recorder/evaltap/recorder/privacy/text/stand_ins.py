"""Recognize what stands where a secret would: placeholders, variables, look-ups in code, remarks.

None of these is a secret, whatever name is in front of it: `password = var.db_password`,
`password: (sensitive value)`, `token: ${{ secrets.TOKEN }}`, `credentials: /etc/app/key.json`.
"""

import re

from evaltap.recorder.privacy.text.normalization import listed

_WORDS = frozenset(
    listed("""
null none nil true false undefined required optional missing invalid incorrect string str text empty yes
no n/a expired wrong correct reset changed needed unknown the a an not in to for must should too your my
is was redacted hidden and or number integer boolean bytes object any password secret token username
email varchar char field value input placeholder 1password todo tbd include omit same-origin
inherit write read await filtered masked sensitive unset private oauth2 ntlm mtls saml2 key
""")
)
_VARIABLES = listed("""
< *sensitive [redacted *** ••• ${ $( {{ {% %( %{ %env( #{ $__ process.env os.environ os.getenv getenv( system.getenv env( env[ env.
env: env:: std::env import.meta secrets. vars. var. !ref !sub !getatt fn:: vault: ssm: ref+ op:// sm:// file:/ env:/
secretsmanager: arn: keyring: keychain: enc[ {{resolve: @microsoft.keyvault your- your_ xxxx sys.argv getpass input(
config[ config.get settings. self. this. request. req. args. options. deno.env environment. environ[ [your <your
""")
"""How variables, and addresses in a store of secrets, begin."""
_CODE = re.compile(
    r"!{1,2}[a-z][a-z/_]*|[A-Za-z_][\w.]*\(.*|\$(?:[A-Z_][A-Z0-9_]*|(?:[A-Z][a-z]{2,20}){1,6}\d?)|%[A-Z_]+%|[A-Za-z_]+(?:\.[A-Za-z_]+)+|[A-Z][A-Z]*(?:_[A-Z]+)+"
)
_TYPES = re.compile(
    r"(?i)&?(?:str|string|text|bytes|int|bool|boolean|float|none|void|any|optional|secretstr|varchar|char|nvarchar)\b"
    r"[\[(|?.\w\])]*:?"
)
_IDENTIFIER = r"(?:[a-z_]{2,40}(?:[A-Z][a-z]{2,20}){0,6}|(?:[A-Z][a-z]{2,20}){1,6}|[A-Z]{2,20}(?:_[A-Z]{1,20}){0,8})"
_SHELL_VARIABLE = re.compile(
    rf"@[A-Z_]{{3,60}}@\Z|\$(?:[A-Z][A-Z0-9_]*+|{_IDENTIFIER}(?:(?:\.|->|::)[A-Za-z_]+){{0,4}})(?=[@/:?&\"')]|\Z)"
)
_REMARKS = (
    r"(?i:redacted|filtered|masked|hidden|secret|removed|sensitive|protected|encrypted|omitted|snip|scrubbed|concealed"
    r"|confidential|none|null|empty|undefined|unset|not set|not shown)"
)
_VERSION = r"[\^~>=v]{0,2}\d{1,4}\.\d{1,2}\.\d{1,3}(?:[-+.][\w.+-]{1,40})?(?=[\s\"',;)}\]]|\Z)"
_ROUTE = r"/(?:[a-z][a-z_-]{1,30}|\d{1,8})(?:/(?:[a-z][a-z0-9_.-]{0,30}|\d{1,8}|:[a-z]{1,20}|\{\w{1,20}\})){1,12}/?(?![\w+=/])"
_REMARK = r"\((?:[A-Za-z]{2,16}(?:[ -][A-Za-z]{2,16}){0,5}|\d{1,4} [a-z]{3,12})\)"
_FILE = (
    r"(?:/(?:etc|run|var|home|root|opt|usr|secrets?|mnt|tmp|data|srv|app|config|vault|Users|proc|keys|certs|workspace|builds?)/|~/|\.{1,2}/)"
    r"[\w./@-]{1,200}+(?![+=])|[\w.-]{1,60}/[\w./=-]{1,160}?\.(?:json|pem|key|txt|crt|cer|p12|pfx|jks|keytab|ya?ml|env|toml|ini"
    r"|properties|asc|gpg|pub|cfg|conf|cnf|enc|gz|zip|csv|parquet|logs?|png|jpe?g|svg|pdf|html?)(?![\w@])"
)
_SAMPLE_URL = (
    r"[a-z][a-z0-9+.-]{1,30}://(?:(?i:user(?:name)?|usr|login)|\$\{?\w{1,60}\}?)"
    r":(?:(?i:pass(?:word|wd)?|pw|pwd)|\$\{?\w{1,60}\}?)@[^\s\"'@]{1,200}"
)
_FINGERPRINT = r"(?:SHA256:|MD5:(?:[0-9a-f]{2}:){2})"
_STANDS = re.compile(
    rf"{_REMARK}|\[{_REMARKS}\b[^\]\n]{{0,40}}\]|{_VERSION}|{_FILE}|{_ROUTE}|{_FINGERPRINT}|{_SAMPLE_URL}(?=[\s\"',;]|\Z)"
    rf"|\{{(?:{_IDENTIFIER}\d?(?:\.[A-Za-z_.]{{1,40}})?|\d{{0,2}})"
    r"(?:\([^(){}\n]{0,40}\)|\[[^\]\n]{0,30}\])?(?:![rsa])?(?::[^{}\n]{0,20}|=)?\}|\{\"?[A-Za-z_]\w{0,60}\"?:[ ]"
)
_SUBSCRIPT = r"\[(?:[\"'][^\"'\n]{0,60}[\"']|[\w.:+*-]{1,40}|\w{1,30} ?[+-] ?\d)\](?!\w)"
_TYPE = r"\[(?:[\"'][\w-]{1,40}[\"'][,\]]|(?=\n|\Z)|\[?[A-Za-z_][A-Za-z_.]{0,90}\d?(?:[\[,|]|[ ][|&]|\]\]?(?=[,)= \n]|\Z)))"
_EXPRESSION = re.compile(
    rf"[A-Za-z_$@][\w.$:>-]{{0,80}}(?:{_SUBSCRIPT}|{_TYPE})|\[(?![A-Z][a-z]{{2,20}}_)[A-Za-z_]{{2,30}}\]"
    r"|[A-Za-z_$][\w.:]{0,80}(?:->\w{1,40}){0,3}[!?]?\(|\((?:const |struct |unsigned |\w{1,30} ?\*[ )]|[a-z_]{2,40}[,)]|[A-Za-z_.]{2,40}[,\[(])"
    r"|\[\]byte\(|[A-Za-z_][\w.]{0,60} \+ [A-Za-z_\"']|@[\w./-]{1,60}\.[a-z]{2,5}(?!\w)|(?:[A-Za-z_]+\d?\.){1,6}[A-Za-z_]{3,40}(?=[\s,;)\]}\"':]|\Z)"
    r"|#\{|\[\{|@?[\[<@]{2}[A-Za-z]|(?:Get|Read|ConvertTo|ConvertFrom|New|Import|Invoke|Unprotect)-[A-Z][A-Za-z]{2,40}\b"
    r"|(?:await|new|yield|lambda|not|typeof)[ ][A-Za-z_(]|&(?:'\w{1,20} )?(?:mut )?(?:str|String)\b"
)
_WHOLE = re.compile(
    r"(?:(?i:bearer|basic|token) )?(?:"
    r"\$\{\{?(?![^}]*:[-=])[^{}\n\"']{1,200}\}\}?|\$\([^()\n]{1,200}\)|\$[A-Z][A-Z0-9_]{2,60}"
    r"|\{\{(?![^}]*(?:default|\|\||\bor\b))[^{}\n]{1,200}\}\}|\{%[^{}\n]{1,200}%\}|<%=?[^<>\n\"']{1,200}%>|[#%]\{[^{}\n\"']{1,120}\}#?"
    rf"|(?:\$?\{{(?:{_IDENTIFIER}\d?|\d{{0,2}})(?:\.[A-Za-z_.]{{1,40}}|![rsa])?(?::[<>^+,]?\d{{0,3}}(?:\.\d{{1,2}})?[a-z%]?)?\}}[^\w{{}}]{{0,3}}){{1,8}}"
    r"|(?:%[sdr][^\w%]{0,3}){1,8}|`[^`\n]{1,200}`|\*{1,3}[A-Z][A-Z* _]{2,40}\*"
    r"|(?:required|nullable|sometimes|string|confirmed|min:\d{1,3})(?:\|[a-z_]{1,20}(?::[\w,]{1,30})?){1,8}|%%?[A-Z][A-Z0-9_]{2,60}%%?|%env\([\w:]{1,80}\)%|__[A-Z][A-Z0-9_]{1,60}__|@@?[A-Z][A-Z0-9_]{2,60}@@?"
    r"|\[\[[A-Za-z_ .-]{1,60}\]\]|<<?[A-Za-z][A-Za-z_ -]{1,60}>>?|[*•]{3,64}|x{4,64}"
    rf"|\[{_REMARKS}\b[^\]\n]{{0,40}}\]|{_REMARK}|{_VERSION}|{_SAMPLE_URL}|(?:op|vault|ref\+\w{{1,20}})://\S{{1,200}}|https?://[\w.-]{{1,80}}/?"
    r"|arn:aws[\w-]{0,10}:(?:secretsmanager|ssm|kms):\S{1,200})"
)
_MONOSPACED = re.compile(r"\{\{(?=[^{}]*\d)(?=[^{}]*[!#$^*+~])([^\s{}]{6,128})\}\}")
"""A password that Jira's markup prints in another type, not a template's variable."""


def is_placeholder(value: str) -> bool:
    """Return whether a value only stands in for a secret: `${TOKEN}`, `null`, `***`."""
    plain = value.strip().lower()
    return plain in _WORDS or is_variable(value) or not any(map(str.isalnum, plain))


def is_variable(value: str) -> bool:
    """Return whether a value refers to a variable: `${TOKEN}`, `$TOKEN`, `os.environ["TOKEN"]`."""
    plain = value.strip()
    if plain.lower().startswith(_VARIABLES):
        return _MONOSPACED.fullmatch(plain) is None
    return plain[:1] in ("$", "@") and _SHELL_VARIABLE.match(plain) is not None


def is_code(value: str) -> bool:
    """Return whether an unquoted word is an expression or a type: `get_secret()`, `user.pw`."""
    return bool(_CODE.fullmatch(value) or _TYPES.fullmatch(value))


def stands_here(text: str, at: int) -> bool:
    """Return whether a remark, a file, a version or a template's field starts here."""
    return _STANDS.match(text, at) is not None


def is_expression(text: str, at: int) -> bool:
    """Return whether a look-up, a call or a type of a program starts here."""
    return _EXPRESSION.match(text, at) is not None


def monospaced(text: str, at: int) -> tuple[int, int] | None:
    """Return the span of a password in Jira's `{{x}}` that starts here."""
    match = _MONOSPACED.match(text, at)
    return match.span(1) if match is not None else None


def is_stand_in(value: str) -> bool:
    """Return whether all of a value is a variable, a mask, a remark or a version.

    Stricter than `is_placeholder`: for a value that a secret's name would hide whatever it looks like.
    """
    return _WHOLE.fullmatch(value) is not None and _MONOSPACED.fullmatch(value) is None


_SENTENCE = re.compile(
    r"(?:[A-Za-z][A-Za-z'’-]{0,20}|\(?\d{1,4})[,.:;!?)]?(?:[ ]\(?(?:[A-Za-z][A-Za-z'’-]{0,20}|\d{1,4})[,.:;!?)]{0,2}){2,30}"
)
_OF_MESSAGES = frozenset(
    listed("""
required must should cannot least most characters character digits short long common numeric invalid incorrect wrong match
blank empty weak missing
""")
)


def is_message(value: str) -> bool:
    """Return whether it is what a form says of a field: `This field is required.`"""
    if _SENTENCE.fullmatch(value) is None:
        return False
    return not _OF_MESSAGES.isdisjoint(word.strip(".,:;!?()").lower() for word in value.split())
