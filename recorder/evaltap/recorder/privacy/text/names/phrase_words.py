"""Words that name a secret only together: `chiave segreta`, `code d'accès`, `åtkomstnyckel`.

A phrase has a head (a word for key, code or token) and a modifier (secret, access, security, ...), in
either order, with particles in between, or both in one word. The lists are in lower case, without
accents and without the Arabic article. English names have rules of their own in `secret_names`.
"""

from collections.abc import Sequence
from itertools import pairwise

from evaltap.recorder.privacy.text.normalization import listed

_KEYS = frozenset(
    listed("""
chiave chiavi llave llaves clave claves cle cles clef chave chaves cheie cheia schlussel schluessel sleutel nyckel nyckeln nogle
noglen nokkel nokkelen avain klucz klucza klic klice kluc kluca kljuc kulcs kulcsa anahtar anahtari anahtariniz kunci clau raktas
atslega ключ ключа ключом кључ κλειδι مفتاح מפתח
""")
)
_CODES = frozenset(
    listed("""
codice codici codigo codigos cod codul code codes kode koden kod kodu kodunuz kodun kodum kodi koodi koodin kood kodas kods код кода кодом
קוד رمز كود κωδικος
""")
)
_TOKENS = frozenset(
    listed("token tokens tokenu jeton jetons jetoane токен токена токеном belirtec belirteci")
)
_PHRASES = frozenset(listed("phrase frase fraza frazy fras frasen lause фраза φραση слово"))
_WORDS = frozenset(["كلمة", "كلمه"])
HEADS = _KEYS | _CODES | _TOKENS | _PHRASES | _WORDS

_FOR_ALL = frozenset(
    listed("""
secret secrets secreta secreto secretos segreta segreto secrete geheim geheime geheimer geheimes geheimen hemlig hemliga
hemmelig hemmelige salainen tajny tajna tajne tajneho gizli rahasia tajni skrivni titkos таен тайен секретный секретного
секретное секретная секретен секретний секретна таємний тајни μυστικο μυστικος سري سريه سرية סודי סודית
private privat privada privado privata privato privee prive privater privates privaat prywatny prywatnego privatni
soukromy yksityinen ozel приватный приватного приватний закрытый закрытого закритий личный خاص خاصة פרטי
access acceso accesso acces acesso zugang zugangs zugriff zugriffs toegang toegangs atkomst adgang adgangs tilgang
tilgangs paasy kaytto dostepu dostepowy pristupu pristupovy pristupove pristupni pristupny hozzaferesi belepesi erisim
giris akses доступа доступу приступа достъп προσβασης وصول دخول مرور عبور גישה כניסה
security seguridad seguranca sicurezza securite securitate sicherheits beveiligings sakerhets sikkerheds sikkerhets
bezpieczenstwa bezpecnostni biztonsagi guvenlik turvallisuus turva keamanan безопасности безпеки ασφαλειας امان أمان אבטחה
verification verificacion verificacao verifica verificare bestatigungs bestaetigungs verificatie verifierings
verifikasjons weryfikacyjny weryfikacji overovaci ellenorzo dogrulama verifikasi подтверждения проверки підтвердження
επαληθευσης تحقق אימות activation activacion ativacao attivazione aktivierungs aktywacyjny aktywacji активации
recovery recuperacion recuperacao recupero recuperation recuperare wiederherstellungs herstel aterstallnings
odzyskiwania obnovovaci kurtarma pemulihan восстановления відновлення استرداد
desbloqueo desbloqueio sblocco deverrouillage entsperr freischalt ontgrendelings odblokowania
autenticacion autenticazione autenticacao authentification authentifizierungs uwierzytelniania autorizacion autorizacao
autorizzazione autorisation autoryzacji авторизации аутентификации مصادقة
""")
)
_FOR_KEYS = _FOR_ALL | frozenset(
    listed("""
api cifrado criptografia crittografia cifratura chiffrement verschlusselungs verschluesselungs krypterings szyfrowania
sifreleme шифрования تشفير firma assinatura signature signatur signier podpisu imza подписи توقيع
licencia licenca licenza licence lizenz licentie licens lisens licencji lisans lisensi лицензии ترخيص
maestra mestra maitre master hlavni главный wifi wlan
""")
)
_FOR_TOKENS = _FOR_ALL | frozenset(
    listed("""
api auth session sesion sessione sessao sitzungs sesji oturum сессии confirmacion confirmacao conferma confirmation
odswiezania aktualisierungs actualizacion refresco
""")
)
_FOR_CODES = _FOR_ALL | frozenset(
    listed("pin otp tan sms пин confidentiel confidencial confidenziale riservato")
)
_FOR_PHRASES = _FOR_ALL | frozenset(
    listed("passe contrasena senha hasla парольная кодовое тайное losen")
)
_FOR_WORDS = frozenset(["مرور", "سر", "دخول"])
MODIFIERS = _FOR_KEYS | _FOR_TOKENS | _FOR_CODES | _FOR_PHRASES | _FOR_WORDS
NO_SECRETS = frozenset(
    listed("""
primaria primaire primarias foranea etrangere externa esterna publica publique pubblica chiave unica unique natural compuesta
busqueda ordenacion ordenamiento producto pedido cliente postal descuento promocional error pais
προιοντος κουπονιου παραγγελιας πελατη εκπτωσης προσφορας σφαλματος χωρας
""")
)
"""What a word for key or code that is a secret alone means with one of these is none."""
_PAIRS = (
    (_KEYS, _FOR_KEYS), (_CODES, _FOR_CODES), (_TOKENS, _FOR_TOKENS), (_PHRASES, _FOR_PHRASES),
    (_WORDS, _FOR_WORDS),
)  # fmt: skip
_PARTICLES = frozenset(
    listed("""
de di d da do del della dell dello des du l el la le les of fur zu zum voor van av til na для к за al
""")
)
_ENGLISH = frozenset(
    listed("""
code codes token tokens secret secrets private access security activation recovery api signature licence
master wifi auth session confirmation pin otp tan sms
""")
)
"""Also English: next to each other they are left to the rules for English names."""
_JOINED_HEADS = tuple(
    listed("""
schlussel schluessel sleutel nyckel nyckeln nogle noglen nokkel nokkelen avain code kode koden kod koodi token fras frase
""")
)
_JOINED_MODIFIERS = (
    "losen",
    *(one for one in sorted(MODIFIERS) if one.isascii() and len(one) > 4 and one not in _ENGLISH),
)


def is_secret_phrase(words: Sequence[str]) -> bool:
    """Return whether words (lower case, no accents) contain a head with its modifier."""
    words = [bare(one) for one in words]
    if any(map(_is_joined, words)):
        return True
    near = [(at, one) for at, one in enumerate(words) if one not in _PARTICLES]
    return any(
        (_belong(one, other) or _belong(other, one))
        and (later - at > 1 or one not in _ENGLISH or other not in _ENGLISH)
        for (at, one), (later, other) in pairwise(near)
    )


def bare(word: str) -> str:
    """Return a word without the Arabic or Hebrew article."""
    if word[:2] == "ال":
        return word[2:]
    return word[1:] if word[:1] == "ה" else word


def _belong(head: str, modifier: str) -> bool:
    return any(head in heads and modifier in modifiers for heads, modifiers in _PAIRS)


def _is_joined(word: str) -> bool:
    return word.endswith(_JOINED_HEADS) and word.startswith(_JOINED_MODIFIERS)
