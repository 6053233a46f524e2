"""Formats of keys and tokens of known services: data for `evaltap.recorder.privacy.known_formats`.

Each row has the keys' prefixes and the full pattern; a group marks the secret where the pattern
needs surrounding context. Lengths are lower bounds where a service has changed them before.
`NEEDLED` rows have no prefix of their own but contain a fixed part, listed first. The formats are
facts from the services' own documentation and key pages, checked for completeness against the rules
that gitleaks publishes (MIT license).
"""

import re

from evaltap.recorder.privacy.text.normalization import listed

SECRET_FORMATS = (
    # Models and agent services
    ("sk-", r"sk-(?=[a-z_-]{0,255}[0-9A-Z])[\w-]{20,255}+"),  # OpenAI, Anthropic, OpenRouter, DeepSeek, Langfuse
    ("sk_", r"sk_[0-9a-f]{40,64}+"),  # ElevenLabs
    ("sk_ rk_ pk_ sess_", r"(?:[sr]k_(?:live|test|prod|org)|pk_live|sk_org_live|sess)[_-][A-Za-z0-9_-]{10,255}+"),  # Stripe, Clerk
    ("pk-lf-", r"pk-lf-[0-9a-f-]{30,40}"),
    ("AIza", r"AIza[\w-]{30,50}+"),
    ("AQ.", r"AQ\.[A-Za-z0-9][\w-]{30,200}+"),
    ("ya29.", r"ya29\.[\w.-]{20,2000}+"),
    ("GOCSPX-", r"GOCSPX-[\w-]{20,60}+"),
    ("1//0", r"1//0[\w-]{30,200}+"),
    ("hf_ api_org_", r"(?:hf|api_org)_[A-Za-z0-9]{30,60}+"),
    ("gsk_", r"gsk_[A-Za-z0-9]{30,80}+"),
    ("r8_", r"r8_[A-Za-z0-9]{30,60}+"),
    ("pplx-", r"pplx-[A-Za-z0-9]{30,80}+"),
    ("xai-", r"xai-[A-Za-z0-9]{40,120}+"),
    ("csk-", r"csk-[A-Za-z0-9]{30,80}+"),
    ("fw_ fpk_", r"(?:fw|fpk)_[A-Za-z0-9]{20,80}+"),
    ("tgp_v1_", r"tgp_v1_[\w-]{30,80}+"),
    ("esecret_", r"esecret_[A-Za-z0-9]{20,80}+"),
    ("nvapi-", r"nvapi-[\w-]{40,100}+"),
    ("pa- al-", r"(?:pa|al)-(?=[\w-]{0,60}\d)(?=[\w-]{0,60}[A-Z])[\w-]{38,80}+"),  # Voyage
    ("jina_", r"jina_[A-Za-z0-9_-]{40,80}+"),
    ("pcsk_", r"pcsk_[A-Za-z0-9_]{20,120}+"),
    ("tvly-", r"tvly-[A-Za-z0-9-]{20,80}+"),
    ("fc-", r"fc-[0-9a-f]{32}(?![0-9a-zA-Z])"),
    ("e2b_", r"e2b_[0-9a-f]{30,64}+"),
    ("lsv2_ ls__", r"(?:lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}|lsv2_[\w]{20,100}|ls__[0-9a-f]{20,64})"),
    ("pylf_v", r"pylf_v\d{1,2}_(?:[a-z]{2,6}_)?[A-Za-z0-9]{30,80}+"),
    ("llx-", r"llx-[A-Za-z0-9]{30,80}+"),
    ("ck-", r"ck-[A-Za-z0-9]{40,80}+"),
    ("ak_ uak_", r"u?ak_(?=[\w-]{0,40}\d)[A-Za-z0-9_-]{18,60}+"),  # Composio
    ("ak- as-", r"a[ks]-(?=\w{0,40}\d)[A-Za-z0-9]{20,40}+"),  # Modal
    ("bb_live_ bb_test_", r"bb_(?:live|test)_[\w-]{20,60}+"),
    ("apify_api_ apify_proxy_", r"apify_(?:api|proxy)_[A-Za-z0-9]{20,60}+"),
    ("wandb_", r"wandb_v\d_[\w-]{40,120}+"),
    ("rpa_", r"rpa_[A-Z0-9]{30,60}[a-z0-9]{0,10}"),
    ("crsr_ key_", r"(?:crsr|key)_[0-9a-f]{40,80}+"),
    ("ydc-sk-", r"ydc-sk-[\w-]{20,100}+"),
    ("BSA", r"BSA(?=[\w-]{0,30}\d)[\w-]{24,40}+"),  # Brave
    ("phc_ phx_ phs_", r"ph[cxs]_[A-Za-z0-9]{30,60}+"),
    ("hcaik_ hcxik_ hcxlk_ hcalk_", r"hc[ax][il]k_[0-9a-z]{40,80}+"),
    ("secret_ ntn_", r"(?:secret|ntn)_[A-Za-z0-9]{40,60}+"),
    ("secret-", r"secret-[A-Za-z0-9]{32,60}+"),
    ("vck_ vcp_ vci_ vca_ vercel_blob_rw_", r"(?:vc[kpia]|vercel_blob_rw)_[A-Za-z0-9_]{20,120}+"),
    ("ion_", r"ion_[a-z0-9]{40,60}+"),
    ("polar_", r"polar_[a-z]{2,6}_[A-Za-z0-9]{30,80}+"),
    ("waka_", r"waka_[0-9a-f-]{36}"),
    ("sgp_ slk_", r"s(?:gp|lk)_(?:(?:[0-9a-fA-F]{16}|local)_)?[0-9a-fA-F]{40,64}"),
    # Clouds
    ("AKIA ASIA AROA AIDA AGPA ANPA ANVA APKA ABIA ACCA AIPA", r"A(?:KIA|SIA|ROA|IDA|GPA|NPA|NVA|PKA|BIA|CCA|IPA)[A-Z0-9]{16}(?![A-Z0-9])"),
    ("A3T", r"A3T[A-Z0-9][A-Z0-9]{16}(?![A-Z0-9])"),
    ("ABSK", r"ABSK[\w+/]{60,400}={0,2}"),
    ("bedrock-api-key-", r"bedrock-api-key-[\w+/=.-]{20,4000}+"),
    ("IQoJb3JpZ2lu FwoGZXIvYXdz FQoGZXIvYXdz", r"(?:IQoJb3JpZ2lu|F[wQ]oGZXIvYXdz)[\w+/=]{60,4096}+"),
    ("AzFu", r"AzFu[\w+/=-]{20,100}+"),
    ("LTAI", r"LTAI[A-Za-z0-9]{12,30}+"),
    ("AKID", r"AKID[A-Za-z0-9]{13,40}+"),  # Tencent
    ("AKLT", r"AKLT[A-Za-z0-9_-]{20,70}={0,2}"),  # Volcengine
    ("bce-v3/", r"bce-v3/ALTAK-[\w/-]{20,100}+"),
    ("AQVN AQAA", r"(?:AQVN|AQAA)[\w-]{30,60}+"),
    ("t1.", r"t1\.[\w-]{4,400}={0,2}\.[\w-]{60,100}={0,2}"),
    ("YCAJ YCM YCN YCO YCP", r"YC(?:AJ|[MNOP])[\w-]{20,50}+"),
    ("dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    ("v1.0-", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,160}"),
    ("cfut_ cfat_ cfk_ cfp_", r"cf(?:ut|at|k|p)_[A-Za-z0-9_-]{30,80}+"),
    ("HRKU-", r"HRKU-[\w-]{36,80}+"),
    ("aio_", r"aio_[A-Za-z0-9]{28}(?![A-Za-z0-9])"),  # Adafruit IO
    ("SCW", r"SCW[A-Z0-9]{17}(?![A-Z0-9])"),
    ("tk-us- tk-eu-", r"tk-(?:us|eu)-[\w-]{40,60}+"),
    ("fo1_ fm1a_ fm1r_ fm2_ FlyV1", r"(?:fo1|fm1[ar]|fm2)_[\w+/=,-]{40,1000}+"),
    ("rnd_", r"rnd_[A-Za-z0-9]{20,50}+"),
    ("nfp_ nfc_ nfo_ nfu_ nfb_", r"nf[pcoub]_[A-Za-z0-9]{30,60}+"),
    ("napi_", r"napi_[A-Za-z0-9]{40,90}+"),
    ("npg_", r"npg_[A-Za-z0-9]{10,30}+"),
    ("sbp_ sb_secret_ sb_publishable_", r"(?:sbp_(?:oauth_|v0_)?[0-9a-f]{40}|sb_(?:secret|publishable)_[\w-]{20,60}+)"),
    ("pscale_", r"pscale_(?:tkn|pw|oauth|app)_[\w.=-]{30,80}+"),
    ("mdb_sa_sk_", r"mdb_sa_sk_[\w-]{20,80}+"),
    ("dapi", r"dapi[0-9a-f]{32}(?:-\d)?"),
    ("dose", r"dose[0-9a-f]{32}"),
    ("cflt", r"cflt[A-Za-z0-9+/]{40,80}+"),
    ("4b1d", r"4b1d[A-Za-z0-9]{38}(?![A-Za-z0-9])"),  # ClickHouse
    ("sha256~", r"sha256~[\w-]{43}"),  # OpenShift
    ("tskey-", r"tskey-[a-z]{3,12}-[A-Za-z0-9-]{15,80}+"),
    ("ops_eyJ", r"ops_eyJ[\w+/=-]{100,4000}+"),
    ("A3-", r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),
    ("hvs. hvb. hvr.", r"hv[sbr]\.[\w-]{20,300}+"),
    ("s.", r"s\.(?=[A-Za-z]{0,23}\d)[A-Za-z0-9]{24}(?![\w(]|\.\w)"),
    ("dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,80}+"),
    ("st.", r"st\.[0-9a-f-]{24,40}\.[0-9a-f]{32}\.[0-9a-f]{32}"),  # Infisical
    ("pul-", r"pul-[0-9a-f]{40}"),
    ("akab-", r"akab-[a-z0-9]{16}-[a-z0-9]{16}"),
    ("AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{50,70}+"),
    # Code hosting and developer tools
    ("ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{30,255}+"),
    ("github_pat_", r"github_pat_\w{22,255}+"),
    ("glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glffct- glimt- glagent- glsoat- gloas- glwt-",
     r"gl(?:pat|dt|rtr?|cbt|ptt|ft|ffct|imt|agent|soat|oas|wt)-[\w.-]{16,320}+"),
    ("GR1348941", r"GR1348941[\w-]{20}"),
    ("ATATT3 ATCTT3 ATBB ATSTT3 ATTA", r"AT(?:ATT3|CTT3|STT3|BB|TA)[\w=-]{20,400}+"),
    ("npm_", r"npm_[A-Za-z0-9]{30,60}+"),
    ("pypi-", r"pypi-[\w-]{50,1000}+"),
    ("rubygems_", r"rubygems_[0-9a-f]{48}"),
    ("oy2", r"oy2[a-z0-9]{43}(?![a-z0-9])"),  # NuGet
    ("cio", r"cio(?=[A-Za-z]{0,30}\d)[A-Za-z0-9]{32}(?![A-Za-z0-9])"),  # crates.io
    ("CLOJARS_", r"CLOJARS_[A-Za-z0-9]{60}"),
    ("dckr_", r"dckr_(?:pat|oat)_[\w-]{20,80}+"),
    ("AKCp", r"AKCp[A-Za-z0-9]{60,80}+"),
    ("cmVmd", r"cmVmd[A-Za-z0-9+/=]{50,80}+"),
    ("PMAK- PMAT-", r"PMA[KT]-[0-9A-Za-z]{20,30}-?[0-9A-Za-z]{0,40}"),
    ("CCIPAT_ CCIPRJ_", r"CCIP(?:AT|RJ)_[A-Za-z0-9]{10,40}_[0-9a-f]{40}"),
    ("bkua_ bkct_ bkaj_", r"bk(?:ua|ct|aj)_[0-9A-Za-z]{30,60}+"),
    ("squ_ sqp_ sqa_ sqb_", r"sq[upab]_[0-9A-Za-z]{40}"),
    ("snyk_", r"snyk_(?:uat|sat)\.[\w.-]{20,120}+"),
    ("API-", r"API-[A-Z0-9]{25,32}(?![A-Za-z0-9-])"),  # Octopus
    ("pnu_ pnb_", r"pn[ub]_[A-Za-z0-9]{36}"),
    ("dbtc_ dbtu_ dbts_", r"dbt[cus]_[\w=+/-]{30,80}+"),
    ("pat. sat.", r"[ps]at\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    ("lin_api_ lin_oauth_ lin_wh_", r"lin_(?:api|oauth|wh)_[A-Za-z0-9]{32,70}+"),
    ("glsa_ glc_", r"gl(?:sa|c)_[\w+/=]{32,400}+"),
    ("eyJrIjoi", r"eyJrIjoi[A-Za-z0-9+/]{50,400}={0,3}"),
    ("sntrys_ sntryu_ sntryi_", r"sntry[sui]_[\w+/=]{32,500}+"),
    ("NRAK- NRII- NRIQ- NRRA- NRJS- NRAA-", r"NR(?:AK|II|IQ|RA|JS|AA)-[\w-]{19,60}+"),
    ("dt0c01. dt0s", r"dt0[a-z]\d\d\.[A-Za-z0-9-]{8,24}\.[A-Za-z0-9]{64}"),
    ("sdk- mob- api-", r"(?:sdk|mob|api)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),  # LaunchDarkly
    ("rdme_", r"rdme_[a-z0-9]{60,80}+"),
    ("ico-", r"ico-[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    ("figd_ figu_ figo_", r"fig[duo]_[\w-]{30,60}+"),
    ("s-s4t2", r"s-s4t2(?:ud|af)-[0-9a-f]{64}"),
    ("sm_aat_ sm_pat_ sm_sat_", r"sm_[aps]at_[A-Za-z0-9]{16,60}+"),
    ("dnkey-", r"dnkey-[\w=-]{26}-[\w=-]{52}"),
    ("sc_ ext_ scauth_ authress_", r"(?:sc|ext|scauth|authress)_[a-zA-Z0-9]{5,30}\.[a-zA-Z0-9]{4,6}\.acc[_-][a-zA-Z0-9-]{10,32}\.[\w+/=-]{30,120}"),
    ("NF-", r"NF-[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    # Messaging and mail
    ("xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxe- xoxe. xoxc- xoxd- xapp-", r"(?:xox[a-z](?:\.xox[a-z])?|xapp)-[\w%+/=-]{10,300}+"),
    ("SG.", r"SG\.[\w=-]{1,60}\.[\w=.-]{16,70}+"),
    ("SK AC", r"(?:SK|AC)[0-9a-fA-F]{32}(?![A-Za-z0-9])"),
    ("key- pubkey-", r"(?:pub)?key-[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("xkeysib- xsmtpsib-", r"x(?:key|smtp)sib-[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    ("re_", r"re_(?=[A-Za-z_]{0,30}\d)[A-Za-z0-9]{8,12}_[A-Za-z0-9]{20,30}"),
    ("pat-na1- pat-eu1- pat-na2- pat-ap1-", r"pat-(?:na|eu|ap)\d-[0-9a-fA-F-]{36}"),
    ("MTA MTE MTI MTk MT Mz NT ND OD OT Nz Nj", r"[MNO][A-Za-z\d_-]{22,28}\.[\w-]{6,7}\.[\w-]{27,45}"),  # Discord bots
    ("tfp_", r"tfp_[\w.=-]{40,70}+"),
    ("dG9r", r"dG9rO[\w+/=]{30,80}+"),  # Intercom
    ("CFPAT-", r"CFPAT-[\w-]{40,60}+"),
    ("fio-u-", r"fio-u-[\w=-]{60,70}+"),
    # Payments and shops
    ("whsec_", r"whsec_[A-Za-z0-9+/=]{20,255}+"),
    ("rzp_live_ rzp_test_", r"rzp_(?:live|test)_[A-Za-z0-9]{10,40}+"),
    ("sq0", r"sq0[a-z]{3}-[\w-]{22,60}+"),
    ("EAAA EAAl EAAE", r"EAA[AlE][\w-]{22,70}(?![\w-])"),  # Square
    ("EAA", r"EAA[A-Za-z0-9][A-Za-z0-9]{60,400}+"),  # Facebook
    ("IGQV IGAA", r"IG(?:QV|AA)[\w-]{60,400}+"),
    ("access-sandbox- access-production- access-development- public- link-",
     r"(?:access|public|link)-(?:sandbox|development|production)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    ("access_token$", r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}"),
    ("shpat_ shpca_ shppa_ shpss_ shpua_", r"shp(?:at|ca|pa|ss|ua)_[0-9a-fA-F]{32}"),
    ("shippo_", r"shippo_(?:live|test)_[0-9a-fA-F]{40}"),
    ("EZAK EZTK", r"EZ[AT]K[A-Za-z0-9]{54}"),
    ("duffel_", r"duffel_(?:test|live)_[\w=-]{40,50}+"),
    ("FLWSECK FLWPUBK", r"FLW(?:SECK|PUBK)(?:_TEST)?-[0-9a-hA-H]{12,32}(?:-X)?"),
    ("live_ test_", r"(?:live|test)_(?:pub_)?[0-9a-f]{31,35}(?![A-Za-z0-9])"),  # Lob
    ("live_", r"live_(?=[A-Za-z_=-]{0,39}\d)[\w=-]{40}(?![\w-])"),  # GoCardless
    ("sl.", r"sl\.(?:u\.)?[\w=-]{60,1500}+"),  # Dropbox
    ("p8e- s8e-", r"[ps]8e-[A-Za-z0-9_-]{28,40}+"),
    ("pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    ("b_", r"b_[\w=-]{44}(?![\w-])"),
    ("pk. sk. tk.", r"[pst]k\.(?:eyJ)?[A-Za-z0-9]{50,250}\.[\w-]{22}"),  # Mapbox
    ("sec-c- sub-c- pub-c-", r"(?:sec|sub|pub)-c-[A-Za-z0-9-]{30,80}+"),
    ("00D", r"00D[A-Za-z0-9]{12,15}![\w.]{60,140}+"),  # Salesforce
    ("3MVG", r"3MVG9[\w.]{60,120}+"),
    ("AAAA", r"AAAA[\w-]{7,11}:APA91[\w-]{100,200}+|A{20,25}[A-Za-z0-9%]{60,120}+"),  # Firebase, X
    ("APA91", r"APA91[\w-]{100,200}+"),
    ("ZXlK", r"ZXlK[A-Za-z0-9+/=_-]{30,4000}+"),  # a base64-encoded JWT
    ("PRVT", r"PRVT[\w-]{20,80}+"),
    ("xprv", r"xprv[A-Za-z0-9]{100,115}+"),
    ("2/", r"[12]/\d{10,20}(?:/\d{10,20})?:[0-9a-f]{32}"),  # Asana
    ("1/", r"[12]/\d{10,20}(?:/\d{10,20})?:[0-9a-f]{32}"),
    ("MII", r"MII[A-Za-z0-9+/]{2}[QgAwIB][BI][BA][AD][A-Za-z0-9+/=\s]{40,8000}+"),  # private keys in DER
    ("MIG MHc MC4", r"(?:MIGHAgEAMBMG|MHcCAQEEI|MC4CAQAwBQYDK2Vw)[A-Za-z0-9+/=]{30,400}+"),
)  # fmt: skip

NEEDLED = (
    ("$2", r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}"),
    ("$", r"\$(?:1|5|6|7|g?y|apr1|scrypt|bcrypt-sha256|pbkdf2(?:-sha\d{1,3})?|argon2(?:id|i|d))\$[\w./$=,+-]{20,200}+"),
    ("$P$", r"\$P\$[./A-Za-z0-9]{31}"),
    ("$H$", r"\$H\$[./A-Za-z0-9]{31}"),
    ("pbkdf2_", r"pbkdf2_sha(?:1|256|512)\$\d{1,9}\$[^\s$]{1,64}\$[\w+/=]{20,128}"),  # Django
    ("scrypt:", r"scrypt:\d{1,9}:\d{1,3}:\d{1,3}\$[^\s$]{4,64}\$[0-9a-f]{64,128}"),
    ("SCRAM-SHA-", r"SCRAM-SHA-\d{1,3}\$\d{3,7}:[\w+/=]{8,64}\$[\w+/=]{20,100}:[\w+/=]{20,100}"),
    ("api.telegram.org/bot", r"api\.telegram\.org/bot(\d{5,16}:[^\s/\"'<>]{8,80})"),
    ("hooks.zapier.com/", r"hooks\.zapier\.com/hooks/[\w/-]{10,100}+"),
    ("hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/[\w/+-]{16,255}+"),
    ("discord", r"discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d{10,25}/[\w-]{30,120}+"),
    (".webhook.office.com", r"[\w-]{1,64}\.webhook\.office\.com/webhookb2/[\w@/-]{60,300}+"),
    (".logic.azure.com", r"\.logic\.azure\.com[^\s\"'<>]{10,400}+"),
    ("outlook.office.com/webhook", r"outlook\.office\.com/webhook/[\w@/-]{60,300}+"),
    (":AA", r"(?<!\d)\d{5,16}:A[A-Za-z0-9_-]{34}(?![\w-])|(?<!\d)\d{8,10}:AA[\w-]{30,40}+"),
    ("-us", r"(?<![A-Za-z0-9])[0-9a-f]{32}-us\d{1,2}(?!\w)"),
    (".atlasv1.", r"[\w-]{14}\.atlasv1\.[\w=-]{60,80}+"),
    ("AccountKey=", r"AccountKey=([\w+/]{40,120}+={0,2})"),
    ("AccessKey=", r"AccessKey=([\w+/]{30,120}+={0,2})"),
    ("sig=", r"[?&]sig=([\w%+/-]{30,120}+=?)"),
    ("Signature=", r"[?&](?:X-Amz-|X-Goog-)?Signature=([\w%+/-]{20,600}+=?)"),
    ("Security-Token=", r"Security-Token=([\w%+/-]{20,4000}+=?)"),
    ("Q~", r"(?<![\w~.])[\w~.]{3}\dQ~[\w~.-]{31,34}(?![\w~-])"),  # Azure AD
    ("_mmk", r"(?<![A-Za-z0-9])[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    ("+ASt", r"[A-Za-z0-9+/]{52,80}\+ASt[A-Za-z0-9+/=]{5,10}"),
    ("AZDO", r"[A-Za-z0-9]{60,90}AZDO[A-Za-z0-9]{4}"),
    ("JQQJ99", r"[A-Za-z0-9]{40,60}JQQJ99[A-Za-z0-9]{20,40}"),  # Azure OpenAI
    ("AAAAAAAAAA", r"(?<![A-Za-z0-9])[a-z0-9]{11}AAAAAAAAAA[\w=-]{43}"),
    ("|", r"(?<!\d)\d{15,16}\|[\w-]{27,40}(?![\w-])"),
    ("%7C", r"(?<!\d)\d{15,16}%7C[\w-]{27,40}(?![\w-])"),
    ("contribsys.com", r"[0-9a-f]{8}:[0-9a-f]{8}(?=@(?:gems|enterprise)\.contribsys\.com)"),
    ("ingest", r"://([0-9a-f]{32})@[\w.-]{0,60}(?:sentry|ingest)"),
    ("T3BlbkFJ", r"[\w-]{20,200}T3BlbkFJ[\w-]{20,200}"),
)  # fmt: skip

SERVICES = listed("""
adafruit adobe airtable algolia alibaba aliyun amadeus anthropic anyscale apify artifactory asana
assemblyai atlassian auth0 azure baidu beamer bintray bitbucket bittrex box braintree brave browserbase
buildkite bugsnag cerebras circleci clearbit cloudflare cloudinary codecov cohere co_api coinbase
composio confluence confluent contentful datadog dashscope deepgram deepl deepseek digitalocean discord
docusign dropbox droneci duffel e2b elevenlabs etsy exa facebook fastly figma finicity finnhub firebase
fireworks firecrawl flickr freshbooks freshdesk gemini github gitlab gitter gocardless google grafana
groq harness helicone heroku honeycomb hubspot huggingface hunter instagram intercom jfrog jina jira
kraken kucoin langfuse langsmith launchdarkly line linear linkedin linked_in linode litellm lob looker
mailchimp mailgun mailjet mapbox mattermost meraki messagebird message_bird minimax mistral mixpanel
modal moonshot mux neon netlify new-relic newrelic new_relic newsapi ngrok notion nvidia nytimes okta
openai openrouter openweather opsgenie pagerduty paypal perplexity pinecone plaid portkey postmark
posthog private_ai privateai prismic pusher qdrant quay rapidapi razorpay replicate resend runpod
salesforce segment sendbird sendgrid sentry serpapi serper shodan shopify slack snowflake snyk sonar
sourcegraph spotify square squarespace stability stripe sumo supabase tavily telegr tencent together
tomtom travis trello twilio twitch twitter typeform unsplash upstash vault vercel voyage vultr
weatherapi weaviate weights wandb sumologic travisci telegram cisco whisper wolfram xray yandex zapier zendesk zilliz zoom dnkey
""")  # fmt: skip
"""Services whose keys have no format of their own: a long word assigned to such a name counts as one."""

KEY_BLOCKS = (
    re.compile(
        r"-----?\s?BEGIN (?:[A-Z0-9]{1,12} ){0,5}(?:PRIVATE|SECRET)(?: [A-Z0-9]{1,12}){0,2}(?: BLOCK)?\s?-----?"
        r"(?>(?:[^-]|-(?!---)){0,40000})(?:-----?\s?END [A-Z0-9 ]{1,60}-----?)?"
    ),
    re.compile(
        r"Private-Lines: ?\d{1,4}(?>(?:[^P]|P(?!rivate-MAC)){0,20000})(?:Private-MAC: ?[0-9a-f]{40,64})?"
    ),
)
"""Private keys that span lines: PEM, OpenSSH, PGP, PuTTY."""
