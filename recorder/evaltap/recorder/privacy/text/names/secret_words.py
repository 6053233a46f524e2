"""The words in names of secrets, phone numbers, cards and ids; used by `secret_names`."""

from evaltap.recorder.privacy.text.normalization import listed

EXACT = frozenset(
    listed("""
basicauth httpauth pasword passwrod pass pw pwd psw pswd passw passwd passwrd password passwort passphrase passcode passkey pin pincode otp totp hotp tan mtan cvv
cvc cvn csc ssn dsn jwt psk pat creds credential credentials authorization proxyauthorization secret
secrets cookie setcookie mnemonic apikey xapikey authtoken xauthtoken phpsessid jsessionid aspsessionid
connectsid csrf xsrf bearer socialsecuritynumber socialsecurity connectionstring connstr cardnumber
creditcardnumber creditcard cardno cardcvc cardpin ccnumber ccnum cccvv userpass requirepass masterauth
identifiedby accountkey sharedaccesskey sharedaccesssignature storagekey idtoken csrftoken xsrftoken
csrfmiddlewaretoken rediscliauth bwsession totpseed otpseed recoverycodes backupcodes securitytoken clienttoken devicetoken
""")
)

ENDINGS = (
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
    "bindpw",
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
    "clientkeydata",
    "privatekeydata",
)

LAST_WORDS = frozenset(
    listed("""
pass pw pwd psw pswd passw passwd passwrd password passwords passphrase passcode pin pins otp totp cvv cvc csc ssn psk creds
credential credentials secret secrets mnemonic jwt cookie cookies apikey apikeys dsn tan pat passkey
keytab passwordhash keystring
""")
)
HARMLESS_BEFORE = {
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

REFERRING = frozenset(
    listed("""
existing tls pull credentials credential source target cert certificate ca sealed external kubernetes k8s
""")
)
"""Before the word secret: what is named refers to one, `existingSecret: redis-auth`."""
PASSWORDS = frozenset(
    ["password", "passwords", "passwd", "passwort", "pwd", "passphrase", "passcode", "pin"]
)
PASSWORDS_OF = frozenset(
    listed("""
user usr utente usuario utilisateur cliente client admin administrador administrateur amministratore db database bd base
server servidor serveur wifi wlan root app account cuenta conto compte conta temp temporary temporaire temporal temporanea
provisoria provvisoria old new current actual attuale atual vecchia nuova nueva nova default initial prod production dev
staging test local master master remote router vpn ftp smtp imap ssh sudo ldap api la le de del di da do du il of for the
""")
)
"""Whose or which password, after the word: `password_utente`."""

SECRET_KEYS = frozenset(
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
HARMLESS_KEYS = frozenset(
    listed("""
for each every of in is on to and or as by with per no any this that same other first last new old if
public primary foreign partition sort cache idempotency object s3 file issue translation i18n routing
row message record config hit miss registry dedup deduplication group hash index lookup map composite natural
unique surrogate candidate alternate event project jira bucket blob arrow enter shift control ctrl alt
escape hot short socket apt from
""")
)

SECRET_CODES = frozenset(
    listed("""
security verification otp 2fa fa mfa totp recovery backup login access pin onetime time secret reset unlock
factor authentication auth authorization verify sms passcode sign signin scratch cvv card device
activation
""")
)

SECRET_TOKENS = frozenset(
    listed("""
access auth refresh session reset verification verify csrf xsrf api bot push device bearer jwt oauth
oauth2 user client invite magic login security service personal deploy registry app application admin
root sas npm pypi github gitlab slack discord telegram hf huggingface webhook private secret integration
x fcm apns activation confirmation password link mfa identity federation sts aws azure gcp vault
""")
)
HARMLESS_TOKENS = frozenset(
    listed("""
page next continuation sync cursor eos bos pad unk mask sep cls special stop max min input output prompt
completion total prev previous start starting end pagination resume skip request sequence forward backward lock lock idempotency change product
""")
)

SECRET_PAIRS = frozenset(
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
ADDRESSES = frozenset(
    listed("""
database db redis mongo mongodb amqp broker rabbitmq postgres postgresql pg mysql mariadb celery
clickhouse elastic elasticsearch jdbc sqlalchemy sentry mssql oracle cockroach neo4j smtp ftp ldap proxy
cache queue
""")
)

# In more than ten languages, without accents; the first list matches anywhere in a name.
FOREIGN = listed("""
contrasen contrasin pasahitz katalaluan passwordnya passwordku passwordmu cyfrinair tajenkljuc tainkluc motdepasse motsdepasse mdpass passwort kennwort zugangscode geheimzahl geheimnis palavrapasse
wachtwoord toegangscode losenord adgangskode kodeord passord salasana tunnusluku jelszo
lozinka zaporka nenosiri wagwoord lykilord lykilorð jelszav slaptazod fjalekalim katasandi matkhau codicesegreto
codigosecreto codesecret codigoseguridad codigodeseguridad codigoverificacion codigodeverificacion
clavesecreta claveapi clavedeapi clavedeacceso claveprivada cleapi clesecrete cleprivee cledapi chaveapi
chiaveapi chiaveprivata chiavesegreta chavesecreta chavedeapi chaveprivada chavedeacesso schlusselapi
apischlussel geheimschlussel geheimerschlussel apischluessel schluesselapi geheimerschluessel
privaterschluessel zugangsschlussel privaterschlussel geheimesleutel apisleutel kluczapi tajnyklucz
kluczprywatny kluczdostepu kodpin tajneheslo sifreniz parolaniz apinyckel hemlignyckel apinokkel
apiavain apianahtari gizlianahtar erisimanahtari tokendostepu tokenacceso tokendeacceso
tokendeacesso jetonacces jetondacces пароль пароля парола парол секретныйключ секретнийключ приватныйключ
ключapi ключдоступа закрытыйключ коддоступа апиключ кодподтверждения лозинка гасло 密码 密碼 口令 密钥 密鑰 秘钥 访问令牌 安全码 秘密の鍵 シークレット セキュリティコード パスフレーズ 暗号鍵 アクセストークン 보안코드 개인키 시크릿 암호키 シークレットキー 秘密キー 비밀키 私钥 私鑰 金鑰 验证码 驗證碼 令牌 凭证 パスワード 暗証番号 秘密鍵 合言葉 認証コード
apiキー アクセスキー 認証キー 접근키 비밀번호 비번 암호 비밀키 인증번호 인증코드 api키 액세스키 인증키 패스워드
""")
FOREIGN_RAW = (
    "पासवर्ड",
    "कूटशब्द",
    "गुप्त कुंजी",
    "एपीआई कुंजी",
    "निजी कुंजी",
    "गुप्त कोड",
    "सत्यापन कोड",
    "सुरक्षा कोड",
    "एक्सेस कुंजी",
    "كلمة المرور",
    "كلمةالمرور",
    "كلمة السر",
    "كلمة مرور",
    "كلمة سر",
    "الرقم السري",
    "كلمةالسر",
    "كلمه المرور",
    "رمز المرور",
    "رمز الوصول",
    "مفتاح api",
    "مفتاح السري",
    "رمز عبور",
    "گذرواژه",
    "סיסמה",
    "סיסמא",
    "סיסמת",
    "סיסמתי",
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
    "khóa bí mật",
    "khóa truy cập",
    "khóa riêng",
    "khóa api",
    "mã truy cập",
    "mã bí mật",
    "mã bảo mật",
    "mã xác minh",
    "mã xác nhận",
    "รหัสลับ",
    "คีย์ลับ",
    "คีย์ api",
    "пароль",
)
FOREIGN_WORDS = frozenset(
    listed("""
clave claves senha senhas mdp heslo hesla haslo hasla geslo sifre sifrem sifresi sifreniz parola parool
parolasi parolam parolaniz parolanin parolayi sifresini sifreyi parolei haslem hasle heslem hesle hesly geslom
gesla lozinku lozinke heslu haslu sandi losen segredo kodikos contrasenya пасс zugangsdaten anmeldedaten identifiants credenciales credenciais credenziali inloggegevens segreto segreti sekret sekreti geheim sifra parole parolata паролата секрет
""")
)

PHONE_WORDS = frozenset(
    listed("""
phone phones telephone tel mobile mobil msisdn cell cellphone cellular celular movil fax whatsapp handy
gsm telefon telefono telefone telefoon telefonnummer telefonnr handynummer rufnummer mobilnummer
mobiltelefon mobilnr puhelin puhelinnumero matkapuhelin komorka telefonu telefonszam telefonni telefonas
cep telepon phonenumber phoneno phonenr telno telnr mobileno mobilenumber cellno faxno homephone
workphone telf tlf tfn numtel numerotelephone contactno contactnumber smsnumber sms whatsappnumber
phonee164 e164 landline hotline callernumber callednumber tonumber fromnumber subscribernumber viber
nohp sdt dienthoai телефон тел моб мобильный 电话 手机 手机号 手机号码 联系电话 電話 電話番号 携帯 携帯電話 手機 전화 전화번호 휴대폰 휴대전화 연락처
fono fone telp hp cel mobiel telefoonnummer telefoonnr mobielnummer mobitela телефону телефона мобильного الجوال الهاتف الموبايل 聯絡電話 手機號碼 電話號碼 行動電話 festnetz natel cellulare cellulari tfno telemovel puh simi simanumer farsimi мобилен τηλ mobitel mobilni mob talrunis
mobiil موبايل फोन मोबाइल هاتف جوال טלפון נייד โทรศัพท์ τηλεφωνο κινητο
""")
)
PHONE_RAW = ("फ़ोन", "फोन", "मोबाइल", "โทร", "เบอร์", "điện thoại", "đt", "موبايل")
"""Searched as they are: in these scripts a word is not all letters."""
PHONE_EXACT = frozenset(
    listed("""
caller callee portable kom contact dial ani dnis recipient wa waid callfrom callto
""")
)
PHONE_ENDINGS = ("contactnumber", "contactno", "phonenumber", "mobilenumber", "telephonenumber")
NO_PHONE = frozenset(
    listed("""
id ids type model os brand name status price version count at date time ts verified vendor screen cost
company carrier code uuid hash label plan minutes
""")
)
CARD_WORDS = frozenset(
    listed("""
card pan cc visa mastercard maestro amex kreditkarte karte tarjeta carte cartao carta
""")
)
IDENTIFIERS = frozenset(
    listed("""
id ids uuid uuids guid guids hash hashes etag etags ts time times date dates timestamp timestamps at sha
md5 checksum digest commit revision sha1 sha256 sha512 nonce fingerprint etags isbn ean gtin sku
""")
)
