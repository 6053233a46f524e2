"""Tell from the name of a value what it holds: a secret, a token, a phone number, a card, an id.

One judgement for keys of objects, variables, headers, columns and words in a sentence.  A name is
split into its words (`dbPassword`, `DB_PASSWORD` and `db password` are one), without accents.
"""

import re
from enum import Enum
from functools import lru_cache

from evaltap.recorder.privacy.text.spelling import folded, listed


class Name(Enum):
    """What the name of a value says about it."""

    SECRET = "a secret, whatever it looks like"
    TOKEN = "a token or a word: the value decides"
    PHONE = "a phone number, where it is a number"
    CARD = "a payment card, where it is a number"
    IDENTIFIER = "an id, a hash or a time: digits mean nothing else"
    PLAIN = "nothing"


_EXACT = frozenset(
    listed("""
pass pw pwd passwd password passwort passphrase passcode passkey pin pincode otp totp hotp tan mtan cvv
cvc cvn csc ssn dsn jwt psk pat creds credential credentials authorization proxyauthorization secret
secrets cookie setcookie mnemonic apikey xapikey authtoken xauthtoken phpsessid jsessionid aspsessionid
connectsid csrf xsrf bearer socialsecuritynumber socialsecurity connectionstring connstr cardnumber
creditcardnumber creditcard cardno cardcvc cardpin ccnumber ccnum cccvv userpass requirepass masterauth
identifiedby accountkey sharedaccesskey sharedaccesssignature storagekey idtoken csrftoken xsrftoken
csrfmiddlewaretoken securitytoken clienttoken devicetoken
""")
)

_ENDINGS = (
    "password",
    "passwd",
    "passwort",
    "passphrase",
    "passcode",
    "passwordconfirmation",
    "secret",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "privkey",
    "signingkey",
    "encryptionkey",
    "accesstoken",
    "authtoken",
    "refreshtoken",
    "bearertoken",
    "sessiontoken",
    "apitoken",
    "bottoken",
    "clientsecret",
    "credential",
    "credentials",
    "authorization",
    "cardnumber",
    "connectionstring",
    "sessid",
    "passkey",
    "authkey",
    "masterkey",
    "cryptokey",
    "securitycode",
    "verificationcode",
    "storepass",
    "keypass",
    "dbpass",
    "dbpw",
    "sqlpw",
    "sqlpwd",
    "dbpwd",
    "userpwd",
    "rootpw",
    "rootpwd",
    "adminpw",
    "adminpwd",
    "adminpass",
    "rootpass",
    "userpass",
    "mysqlpass",
    "smtppass",
    "ftppass",
    "securestring",
    "sshpass",
    "becomepass",
    "mailpass",
    "redispass",
    "pgpass",
    "authpass",
    "privpass",
    "wifipass",
)

_LAST_WORDS = frozenset(
    listed("""
pass pw pwd passwd password passwords passphrase passcode pin pins otp totp cvv cvc csc ssn psk creds
credential credentials secret secrets mnemonic jwt cookie cookies apikey apikeys dsn tan pat passkey
keytab passwordhash
""")
)
_HARMLESS_BEFORE = {
    "pass": frozenset(
        listed("""
boarding season ski by bus day event rail render shader first second third train forward backward multi
single one two travel city museum visitor parking guest mountain
""")
    ),
    "pin": frozenset(
        listed("""
map gpio data clock push hair rolling bowling drop safety input output
""")
    ),
    "cookie": frozenset(["chocolate", "fortune", "oatmeal"]),
    "cookies": frozenset(["chocolate", "fortune", "accept", "allow"]),
    "tan": frozenset(["arc"]),
}

_SECRET_KEYS = frozenset(
    listed("""
api access secret private encryption encrypting decryption signing sign account master ssh service
storage shared aes des rsa hmac dsa ecdsa host server client consumer app application auth
authentication authorization integration subscription deploy deployment admin root webhook session wifi
wlan wpa network crypto cipher license licence rest graphql write read sdk ingest ingestion insert user
developer dev live prod production sandbox merchant payment gateway security csrf cookie jwt pgp gpg ssl
tls cert registration activation serial vault unseal recovery seed wallet mining bearer functions
function cognitive openai anthropic azure aws gcp google gemini cohere mistral groq
huggingface pinecone langsmith langchain langfuse tavily stripe twilio sendgrid slack github gitlab
discord telegram maps mail smtp ftp psk signature product datadog sentry
algolia firebase fcm vapid
""")
)
_HARMLESS_KEYS = frozenset(
    listed("""
for each every of in is on to and or as by with per no any this that same other first last new old if
public primary foreign partition sort cache idempotency object s3 file issue translation i18n routing
row message record config registry dedup deduplication group hash index lookup map composite natural
unique surrogate candidate alternate event project jira bucket blob arrow enter shift control ctrl alt
escape hot short
""")
)

_SECRET_CODES = frozenset(
    listed("""
security verification otp 2fa fa mfa totp recovery backup login access pin onetime time secret reset unlock
factor authentication auth authorization verify sms passcode sign signin scratch cvv card device
activation
""")
)

_SECRET_TOKENS = frozenset(
    listed("""
access auth refresh session reset verification verify csrf xsrf api bot push device bearer jwt oauth
oauth2 user client invite magic login security service personal deploy registry app application admin
root sas npm pypi github gitlab slack discord telegram hf huggingface webhook private secret integration
x fcm apns activation confirmation password link mfa identity federation sts aws azure gcp vault
""")
)
_HARMLESS_TOKENS = frozenset(
    listed("""
page next continuation sync cursor eos bos pad unk mask sep cls special stop max min input output prompt
completion total prev previous start end pagination resume skip
""")
)

_SECRET_PAIRS = frozenset(
    listed("""
seedphrase recoveryphrase secretphrase seedwords recoverywords securityanswer secretanswer sessioncookie
sessionkey connectionstring connstr connectionuri connectionurl codeverifier clientassertion
passwordhash pwdhash passwordsalt secrethash privatepem keypem keymaterial webhookurl webhooksecret
secretvalue secretaccess secretbase keybase secretstring passwordvalue passwordplain passwordconfirm
passwordagain passwordrepeat passwordtext passwordnew passwordold passwordenc passwordencrypted
credentialvalue tokensecret recoverycode recoverycodes backupcode backupcodes onetimepassword
privatelines sastoken sasurl keyauth tokenauth passworddigest walletseed maidenanswer samlassertion
""")
)
_ADDRESSES = frozenset(
    listed("""
database db redis mongo mongodb amqp broker rabbitmq postgres postgresql pg mysql mariadb celery
clickhouse elastic elasticsearch jdbc sqlalchemy sentry mssql oracle cockroach neo4j smtp ftp ldap proxy
cache queue
""")
)

# In ten languages and more, without accents; the first are looked for anywhere in a name.
_FOREIGN = listed("""
contrasen motdepasse motsdepasse mdpass passwort kennwort zugangscode geheimnis palavrapasse
wachtwoord toegangscode losenord adgangskode kodeord passord salasana tunnusluku jelszo
lozinka zaporka slaptazod fjalekalim katasandi matkhau codicesegreto
codigosecreto codesecret codigoseguridad codigodeseguridad codigoverificacion codigodeverificacion
clavesecreta claveapi clavedeapi clavedeacceso claveprivada cleapi clesecrete cleprivee cledapi chaveapi
chiaveapi chiaveprivata chiavesegreta chavesecreta chavedeapi chaveprivada chavedeacesso schlusselapi
apischlussel geheimschlussel geheimerschlussel apischluessel schluesselapi geheimerschluessel
privaterschluessel zugangsschlussel privaterschlussel geheimesleutel apisleutel kluczapi tajnyklucz
kluczprywatny kluczdostepu kodpin tajneheslo sifreniz parolaniz apinyckel hemlignyckel apinokkel
apiavain apianahtari gizlianahtar пароль пароля парола парол секретныйключ секретнийключ приватныйключ
ключapi апиключ кодподтверждения лозинка гасло 密码 密碼 口令 密钥 密鑰 秘钥 验证码 驗證碼 令牌 凭证 パスワード 暗証番号 秘密鍵 合言葉 認証コード
apiキー アクセスキー 비밀번호 비번 암호 비밀키 인증번호 인증코드 api키 액세스키 패스워드
""")
_FOREIGN_RAW = (
    "पासवर्ड",
    "कूटशब्द",
    "كلمة المرور",
    "كلمةالمرور",
    "كلمة السر",
    "كلمةالسر",
    "كلمه المرور",
    "رمز عبور",
    "گذرواژه",
    "סיסמה",
    "סיסמא",
    "รหัสผ่าน",
    "κωδικός πρόσβασης",
    "κωδικός",
    "συνθηματικό",
    "পাসওয়ার্ড",
    "கடவுச்சொல்",
    "గట్టిపదం",
    "პაროლი",
    "գաղտնաբառ",
    "mật khẩu",
    "пароль",
)
_FOREIGN_WORDS = frozenset(
    listed("""
clave claves senha senhas mdp heslo hesla haslo hasla geslo sifre sifrem sifresi sifreniz parola parool
sandi losen segredo kodikos contrasenya sifra
""")
)

_PHONE_WORDS = frozenset(
    listed("""
phone phones telephone tel mobile mobil msisdn cell cellphone cellular celular movil fax whatsapp handy
gsm telefon telefono telefone telefoon telefonnummer telefonnr handynummer rufnummer mobilnummer
mobiltelefon mobilnr puhelin puhelinnumero matkapuhelin komorka telefonu telefonszam telefonni telefonas
cep telepon phonenumber phoneno phonenr telno telnr mobileno mobilenumber cellno faxno homephone
workphone telf tlf tfn numtel numerotelephone contactno contactnumber smsnumber sms whatsappnumber
phonee164 e164 landline hotline callernumber callednumber tonumber fromnumber subscribernumber viber
nohp sdt dienthoai телефон тел моб мобильный 电话 手机 手机号 手机号码 联系电话 電話 電話番号 携帯 携帯電話 手機 전화 전화번호 휴대폰 휴대전화 연락처
फोन मोबाइल هاتف جوال טלפון נייד โทรศัพท์ τηλεφωνο κινητο
""")
)
_PHONE_EXACT = frozenset(
    listed("""
caller callee contact dial ani dnis recipient wa waid callfrom callto
""")
)
_PHONE_ENDINGS = ("contactnumber", "contactno", "phonenumber", "mobilenumber", "telephonenumber")
_NO_PHONE = frozenset(
    listed("""
id ids type model os brand name status price version count at date time ts verified vendor screen cost
company carrier code uuid hash label plan minutes
""")
)
_CARD_WORDS = frozenset(
    listed("""
card pan cc visa mastercard maestro amex kreditkarte karte tarjeta carte cartao carta
""")
)
_IDENTIFIERS = frozenset(
    listed("""
id ids uuid uuids guid guids hash hashes etag etags ts time times date dates timestamp timestamps at sha
md5 checksum digest commit revision sha1 sha256 sha512 nonce fingerprint etags isbn ean gtin sku
""")
)

_WORDS = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+[a-z]*|[^\W\da-zA-Z_]+")
_LONGEST = 128
_LONGEST_REMEMBERED = 64


def kind_of_name(name: str) -> Name:
    """Return what the name of a value says about it."""
    # Names come again and again; texts that are used as keys do not and are long.
    return _remembered(name) if len(name) <= _LONGEST_REMEMBERED else _kind(name[-_LONGEST:])


@lru_cache(maxsize=8192)
def _remembered(name: str) -> Name:
    return _kind(name)


def _kind(name: str) -> Name:
    words = words_of(name)
    if not words:
        return Name.PLAIN
    plain = "".join(words)
    if _is_secret(name, words, plain):
        return Name.SECRET
    if _may_be_token(name, words, plain):
        return Name.TOKEN
    last = words[-1]
    if last in _NO_PHONE:
        return Name.IDENTIFIER if last in _IDENTIFIERS else Name.PLAIN
    is_phone = plain in _PHONE_EXACT or plain in _PHONE_WORDS or plain.endswith(_PHONE_ENDINGS)
    if is_phone or not _PHONE_WORDS.isdisjoint(words):
        return Name.PHONE
    if not _CARD_WORDS.isdisjoint(words):
        return Name.CARD
    is_id = last in _IDENTIFIERS or last.rstrip("0123456789") in _IDENTIFIERS
    return Name.IDENTIFIER if is_id else Name.PLAIN


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case, without accents."""
    return [_unnumbered(word.lower()) for word in _WORDS.findall(folded(name))]


def _unnumbered(word: str) -> str:
    return word.rstrip("0123456789") or word


def _is_secret(name: str, words: list[str], plain: str) -> bool:
    last = words[-1]
    if plain in _EXACT or plain.endswith(_ENDINGS) or plain.removesuffix("s").endswith(_ENDINGS):
        return True
    before = words[-2] if len(words) > 1 else ""
    if last in _LAST_WORDS:
        return before not in _HARMLESS_BEFORE.get(last, ())
    if before and _is_secret_pair(words, before, last):
        return True
    if _KEYWORD.search(plain) is not None:
        return False
    if not _FOREIGN_WORDS.isdisjoint(words) or any(one in plain for one in _FOREIGN_ASCII):
        return True
    joined = _SEPARATOR.sub("", name)
    return not name.isascii() and (
        any(one in plain for one in _FOREIGN_OTHER) or any(one in joined for one in _FOREIGN_JOINED)
    )


_KEYWORD = re.compile(r"palabras?claves?$|palavras?chaves?$|parol[ae]chiave$")
_FOREIGN_ASCII = tuple(one for one in _FOREIGN if one.isascii())
_SEPARATOR = re.compile(r"[\s_.-]+")
_FOREIGN_JOINED = tuple(one.replace(" ", "") for one in _FOREIGN_RAW)
_FOREIGN_OTHER = tuple(folded(one) for one in _FOREIGN if not one.isascii())


def _is_secret_pair(words: list[str], before: str, last: str) -> bool:
    singular = last.removesuffix("s")
    if singular == "key":
        return before in _SECRET_KEYS or (before == "id" and "access" in words)
    if singular == "token":
        return before in _SECRET_TOKENS and (
            singular == last or before in ("api", "access", "refresh")
        )
    if singular == "code":
        return before in _SECRET_CODES
    if last in ("url", "uri") and before in _ADDRESSES:
        return True
    return f"{before}{last}" in _SECRET_PAIRS


def _may_be_token(name: str, words: list[str], plain: str) -> bool:
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "key":
        return bool(before) and before not in _HARMLESS_KEYS
    if last == "token" or plain.endswith("token"):
        return before not in _HARMLESS_TOKENS
    return (
        plain in ("auth", "sid", "signature", "sig", "appid", "secretid")
        or name.lower() == "sessionid"
    )


def is_word_for_keyword(name: str) -> bool:
    """Return whether a name is a language's word for a keyword, which is made of that for a key."""
    return _KEYWORD.search(folded(name).lower()) is not None


def is_address(name: str) -> bool:
    """Return whether a name is that of a connection's address, which need not hold a password."""
    return words_of(name)[-1:] in (["url"], ["uri"], ["dsn"])


_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_opaque(value: object) -> bool:
    """Return whether a value looks made by a machine: long, no blanks, and not a plain word."""
    if not isinstance(value, str) or len(value) < 12 or len(value.split(maxsplit=1)) != 1:
        return False
    return (
        len(value) > 256
        or any(map(str.isdigit, value))
        or value.endswith("=")
        or (len(value) >= 20 and not value.isalpha() and value.lower() != value)
        or (len(value) >= 16 and value.isalnum() and value[1:].lower() != value[1:])
        or (len(value) >= 21 and value.isalnum())
    )


def is_token(value: object) -> bool:
    """Return whether a value under the name of a token is one, and no word, count or setting."""
    if not isinstance(value, str) or len(value) < 6 or any(map(str.isspace, value)):
        return False
    digits = sum(map(str.isdigit, value))
    return digits == len(value) or (len(value) >= 8 and digits > 0) or is_opaque(value)


_PLACEHOLDERS = frozenset(
    listed("""
null none nil true false undefined required optional missing invalid incorrect string str text empty yes
no n/a expired wrong correct reset changed needed unknown the a an not in to for must should too your my
is was redacted hidden and or number integer boolean bytes object any password secret token username
email varchar char field value input placeholder todo tbd
""")
)
_VARIABLES = (
    "<",
    "[redacted",
    "***",
    "•••",
    "${",
    "$(",
    "{{",
    "{%",
    "%(",
    "process.env",
    "os.environ",
    "os.getenv",
    "getenv(",
    "system.getenv",
    "env(",
    "env[",
    "env.",
    "import.meta",
    "secrets.",
    "vars.",
    "var.",
    "!ref",
    "!sub",
    "!getatt",
    "vault:",
    "@microsoft.keyvault",
    "your-",
    "your_",
    "xxxx",
    "sys.argv",
    "getpass",
    "input(",
    "config[",
    "config.get",
    "settings.",
    "self.",
    "this.",
    "request.",
    "req.",
    "args.",
    "options.",
    "deno.env",
    "environment.",
    "environ[",
    "[your",
    "<your",
)
_CODE = re.compile(
    r"!{1,2}[a-z][a-z/_]*|[A-Za-z_][\w.]*\(.*|\$[A-Z_]\w*|%[A-Z_]+%|[A-Za-z_]+(?:\.[A-Za-z_]+)+|[A-Z][A-Z]*(?:_[A-Z]+)+"
)
_TYPES = re.compile(
    r"(?i)(?:str|string|text|bytes|int|any|optional|secretstr|varchar|char|nvarchar)\b[\[(|?.\w\])]*"
)


def is_placeholder(value: str) -> bool:
    """Return whether a value stands for a secret without being one: `${TOKEN}`, `null`, `***`."""
    plain = value.strip().lower()
    return (
        plain in _PLACEHOLDERS or plain.startswith(_VARIABLES) or not any(map(str.isalnum, plain))
    )


def is_code(value: str) -> bool:
    """Return whether a word without quotes is an expression or a type: `get_secret()`, `user.pw`."""
    return bool(_CODE.fullmatch(value) or _TYPES.fullmatch(value))
